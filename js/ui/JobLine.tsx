// Longer work in the kernel while it runs (progress, cancel) and when it has failed (why, again).
import type { JSX } from "preact";
import type { Job } from "../state/jobs";
import { useApp } from "./context";
import { Icon, LevelIcon } from "./Icon";

interface Props {
  job: Job;
  /** What is being done, in a few words. */
  doing: string;
  retry: () => void;
}

function Running({ job, doing }: { job: Job; doing: string }): JSX.Element {
  const { store } = useApp();
  const progress = store.progress.value;
  const share = progress ? progress.done / progress.total : null;
  const stopping = job.status === "cancelling";
  const said = stopping
    ? "Stopping…"
    : progress
      ? `${doing}: ${progress.done} of ${progress.total}`
      : `${doing}…`;
  return (
    <div class="etv-job" role="status">
      <span class="etv-job-text">{said}</span>
      <span class="etv-job-bar" data-unknown={share === null ? true : undefined} aria-hidden="true">
        <span style={share === null ? undefined : { width: `${100 * share}%` }} />
      </span>
      <button type="button" class="etv-button" disabled={stopping} onClick={() => store.jobs.cancel()}>
        Cancel
      </button>
    </div>
  );
}

export function JobLine({ job, doing, retry }: Props): JSX.Element {
  const { store } = useApp();
  if (job.status !== "failed") return <Running job={job} doing={doing} />;
  return (
    <div class="etv-job etv-job-failed" role="alert">
      <LevelIcon level="bad" />
      <span class="etv-job-text">{job.error?.message}</span>
      <span class="etv-job-actions">
        <button type="button" class="etv-button" onClick={retry}>
          <Icon name="retry" /> Retry
        </button>
        <button
          type="button"
          class="etv-button etv-square"
          aria-label="Dismiss"
          onClick={() => store.jobs.dismiss()}
        >
          <Icon name="close" />
        </button>
      </span>
    </div>
  );
}
