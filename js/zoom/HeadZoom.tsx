// In the head of the pane: the button of a delegate call, or whether its zoom is faithful. And for an
// operator inside: the way back to its delegate.
import type { JSX } from "preact";
import { textAt } from "../state/columns";
import { jobOf } from "../state/jobs";
import type { Payload } from "../state/payload";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";
import { FaithfulBadge } from "./FaithfulBadge";

interface Props {
  payload: Payload;
  row: number;
}

export function HeadZoom({ payload, row }: Props): JSX.Element | null {
  const app = useApp();
  const { jobs, source } = app.store;
  const zoom = payload.zooms.of(row);
  if (zoom) return <FaithfulBadge zoom={zoom} />;
  if (!source.kernel || !payload.zooms.canZoom(row) || jobOf(jobs.current.value, "zoom", row)) return null;
  return (
    <button
      type="button"
      class="etv-button"
      disabled={jobs.busy}
      data-tip="Run the operators inside one by one, on the inputs that the runtime gave the delegate"
      onClick={() => app.zoom(row)}
    >
      <Icon name="zoom" /> Zoom
    </button>
  );
}

export function AroundLink({ payload, row }: Props): JSX.Element | null {
  const app = useApp();
  const around = payload.zooms.around(row);
  if (around < 0) return null;
  return (
    <div class="etv-links">
      <button type="button" class="etv-button etv-row-link" onClick={() => app.selectRow(around)}>
        <span>Inside the delegate:</span>{" "}
        <span class="etv-mono">{textAt(payload.column("op"), around) ?? `row ${around}`}</span>
      </button>
    </div>
  );
}
