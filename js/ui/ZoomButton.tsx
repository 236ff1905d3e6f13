// Looks into a delegate call, from the tree or the table; while that runs, it stops it. Not a tab stop
// of its own: the row that it is in answers to the key Z.
import type { JSX } from "preact";
import type { Job } from "../state/jobs";
import { useApp } from "./context";
import { Icon } from "./Icon";

const ZOOM_TIP =
  "Zoom: run the operators inside one by one, on the inputs that the runtime gave the delegate (key Z)";

function tipOf(job: Job | null, blocked: boolean): string {
  if (job?.error) return `${job.error.message}\nPress to try again.`;
  if (job) return "Running: press to cancel";
  return blocked ? "Something else is being computed" : ZOOM_TIP;
}

export function ZoomButton({ row }: { row: number }): JSX.Element {
  const app = useApp();
  const { jobs } = app.store;
  const job = jobs.of("zoom", row);
  const state = job && (job.status === "failed" ? "failed" : "running");
  const blocked = jobs.busy && state !== "running";
  const onClick = (event: Event): void => {
    event.stopPropagation();
    if (state === "running") jobs.cancel();
    else app.zoom(row);
  };
  return (
    <button
      type="button"
      class="etv-zoom"
      tabIndex={-1}
      disabled={blocked}
      aria-label={state === "running" ? "Cancel the zoom" : "Zoom into the delegate"}
      data-state={state ?? undefined}
      data-tip={tipOf(job, blocked)}
      onClick={onClick}
      onDblClick={(event) => event.stopPropagation()}
    >
      <Icon name={state === "running" ? "stop" : state === "failed" ? "warn" : "zoom"} />
    </button>
  );
}
