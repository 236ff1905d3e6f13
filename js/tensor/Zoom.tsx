// Zooming in the pane of a row: of a delegate call the button, its progress and what was found inside;
// of an operator inside the way back.
import type { JSX } from "preact";
import { formatCount } from "../data/format";
import type { Payload } from "../data/payload";
import { ownError } from "../data/rank";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { FaithfulBadge } from "../ui/FaithfulBadge";
import { Icon } from "../ui/Icon";
import { JobLine } from "../ui/JobLine";
import { RowLink } from "./RowLink";
import { Section } from "./Section";

const WORST_SHOWN = 3;

interface Props {
  payload: Payload;
  row: number;
}

/** The button of a delegate call, or whether its zoom is faithful. */
export function HeadZoom({ payload, row }: Props): JSX.Element | null {
  const app = useApp();
  const { jobs, source } = app.store;
  const zoom = payload.zooms.of(row);
  if (zoom) return <FaithfulBadge zoom={zoom} />;
  if (!source.kernel || !payload.zooms.canZoom(row) || jobs.of("zoom", row)) return null;
  return (
    <Button
      disabled={jobs.busy}
      data-tip="Run the operators inside one by one, on the inputs that the runtime gave the delegate"
      onClick={() => app.zoom(row)}
    >
      <Icon name="zoom" /> Zoom
    </Button>
  );
}

export function AroundLink({ payload, row }: Props): JSX.Element | null {
  const around = payload.zooms.around(row);
  if (around < 0) return null;
  return (
    <div class="etv-links">
      <RowLink payload={payload} row={around} text="Inside the delegate:" />
    </div>
  );
}

function Inside({ payload, row }: Props): JSX.Element | null {
  const inside = payload.zooms.inside(row);
  if (inside.length === 0) return null;
  const column = ownError(payload);
  const badness = column && payload.badness(column.name);
  const worst = [...inside].sort((a, b) => (badness?.[b] ?? 0) - (badness?.[a] ?? 0)).slice(0, WORST_SHOWN);
  return (
    <>
      <p class="etv-note-inline">
        {formatCount(inside.length)} {inside.length === 1 ? "value" : "values"} inside, worst first:
      </p>
      <div class="etv-inner-links">
        {worst.map((inner) => (
          <RowLink key={inner} payload={payload} row={inner} column={column} />
        ))}
      </div>
    </>
  );
}

/** How far the look into a delegate is, or why it failed. */
export function ZoomProgress({ row }: { row: number }): JSX.Element | null {
  const app = useApp();
  const job = app.store.jobs.of("zoom", row);
  if (!job) return null;
  return (
    <div class="etv-zoom-section">
      <JobLine job={job} doing="Zooming into the delegate" retry={() => app.zoom(row)} />
    </div>
  );
}

/** Nothing for rows that were not zoomed. */
export function ZoomSection({ payload, row }: Props): JSX.Element | null {
  const zoom = payload.zooms.of(row);
  if (!zoom) return null;
  return (
    <Section title="Inside the delegate">
      <p class="etv-note-inline">{zoom.message}</p>
      <Inside payload={payload} row={row} />
    </Section>
  );
}
