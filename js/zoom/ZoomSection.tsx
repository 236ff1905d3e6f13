// In the pane of a delegate call: the progress of its zoom, and what was found inside.
import type { JSX } from "preact";
import { numberAt, textAt } from "../state/columns";
import { formatCount, formatNumber } from "../state/format";
import { jobOf } from "../state/jobs";
import type { Payload } from "../state/payload";
import { Section } from "../tensor/Section";
import { useApp } from "../ui/context";
import { JobLine } from "../ui/JobLine";

const WORST_SHOWN = 3;

interface Props {
  payload: Payload;
  row: number;
}

function worstInside(payload: Payload, rows: readonly number[]): number[] {
  const column = payload.column("introduced_severity") ? "introduced_severity" : "severity";
  const badness = payload.badness(column);
  return [...rows].sort((a, b) => (badness?.[b] ?? 0) - (badness?.[a] ?? 0)).slice(0, WORST_SHOWN);
}

function InnerLink({ payload, row }: Props): JSX.Element {
  const app = useApp();
  const column = payload.column("introduced_severity") ?? payload.column("severity");
  const value = numberAt(column, row);
  return (
    <button type="button" class="etv-button etv-row-link" onClick={() => app.selectRow(row)}>
      <span class="etv-mono">{textAt(payload.column("op"), row) ?? `row ${row}`}</span>
      {!Number.isNaN(value) && column && (
        <span class="etv-row-link-value">
          {column.label} {formatNumber(value, column.format)}
        </span>
      )}
    </button>
  );
}

function Inside({ payload, row }: Props): JSX.Element | null {
  const inside = payload.zooms.inside(row);
  if (inside.length === 0) return null;
  return (
    <>
      <p class="etv-note-inline">
        {formatCount(inside.length)} {inside.length === 1 ? "value" : "values"} inside, worst first:
      </p>
      <div class="etv-inner-links">
        {worstInside(payload, inside).map((inner) => (
          <InnerLink key={inner} payload={payload} row={inner} />
        ))}
      </div>
    </>
  );
}

/** Nothing for rows that were not zoomed. */
export function ZoomSection({ payload, row }: Props): JSX.Element | null {
  const app = useApp();
  const zoom = payload.zooms.of(row);
  const job = jobOf(app.store.jobs.current.value, "zoom", row);
  if (job) {
    return (
      <div class="etv-zoom-section">
        <JobLine job={job} doing="Zooming into the delegate" retry={() => app.zoom(row)} />
      </div>
    );
  }
  if (!zoom) return null;
  return (
    <Section title="Inside the delegate">
      <p class="etv-note-inline">{zoom.message}</p>
      <Inside payload={payload} row={row} />
    </Section>
  );
}
