// Looks into a delegate call, from the tree or the table; while that runs, it stops it. Not a tab stop
// of its own: the row that it is in answers to the key Z.
import type { JSX } from "preact";
import { jobOf } from "../state/jobs";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";

const ZOOM_TIP =
  "Zoom: run the operators inside one by one, on the inputs that the runtime gave the delegate (key Z)";

export function ZoomButton({ row }: { row: number }): JSX.Element {
  const app = useApp();
  const { jobs } = app.store;
  const job = jobOf(jobs.current.value, "zoom", row);
  const running = job !== null && job.status !== "failed";
  const blocked = jobs.busy && !running;
  const onClick = (event: Event): void => {
    event.stopPropagation();
    if (running) jobs.cancel();
    else app.zoom(row);
  };
  const said = running ? "Cancel the zoom" : "Zoom into the delegate";
  const tip = running
    ? "Running: press to cancel"
    : job?.error
      ? `${job.error.message}\nPress to try again.`
      : blocked
        ? "Something else is being computed"
        : ZOOM_TIP;
  return (
    <button
      type="button"
      class="etv-zoom"
      tabIndex={-1}
      disabled={blocked}
      aria-label={said}
      data-state={running ? "running" : job ? "failed" : undefined}
      data-tip={tip}
      onClick={onClick}
      onDblClick={(event) => event.stopPropagation()}
    >
      <Icon name={running ? "stop" : job ? "warn" : "zoom"} />
    </button>
  );
}
