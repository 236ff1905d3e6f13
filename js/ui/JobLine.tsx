// Longer work in the kernel while it runs (progress, cancel) and when it has failed (why, again).
import type { JSX } from "preact";
import { isWaiting } from "../kernel/source";
import type { Job } from "../state/jobs";
import { Button, IconButton, RetryButton } from "./Button";
import { useApp } from "./context";
import { LevelIcon } from "./Icon";

interface Props {
  job: Job;
  /** What is being done, in a few words. */
  doing: string;
  retry: () => void;
}

function Running({ job, doing }: Omit<Props, "retry">): JSX.Element {
  const { progress, jobs } = useApp().store;
  const { done = 0, total = 0 } = progress.value ?? {};
  const stopping = job.status === "cancelling";
  const said = total > 0 ? `${doing}: ${done} of ${total}` : `${doing}…`;
  return (
    <div class="etv-job" role="status">
      <span class="etv-job-text">{stopping ? "Stopping…" : said}</span>
      <span class="etv-job-bar" data-unknown={total > 0 ? undefined : true} aria-hidden="true">
        <span style={total > 0 ? { width: `${(100 * done) / total}%` } : undefined} />
      </span>
      <Button disabled={stopping} onClick={() => jobs.cancel()}>
        Cancel
      </Button>
    </div>
  );
}

export function JobLine({ job, doing, retry }: Props): JSX.Element {
  const { jobs } = useApp().store;
  const waits = job.error !== null && isWaiting(job.error);
  if (job.status !== "failed") return <Running job={job} doing={doing} />;
  return (
    <div class={waits ? "etv-job" : "etv-job etv-job-failed"} role={waits ? "status" : "alert"}>
      {!waits && <LevelIcon level="bad" />}
      <span class="etv-job-text">{job.error?.message}</span>
      <span class="etv-job-actions">
        <RetryButton retry={retry} />
        <IconButton label="Dismiss" icon="close" onClick={() => jobs.dismiss()} />
      </span>
    </div>
  );
}
