// Longer work that a view starts in the kernel: zooming into a delegate, attributing the error.
// One at a time; it can be cancelled; a failure stays on screen until it is dismissed or tried again.
import { type Signal, signal } from "@preact/signals";
import type { WireError } from "./contract";
import { SILENT, type Source, isError } from "./rpc";

export type JobName = "zoom" | "attribution";

export interface Job {
  name: JobName;
  params: Record<string, number>;
  status: "running" | "cancelling" | "failed";
  error: WireError | null;
}

export class Jobs {
  readonly current: Signal<Job | null> = signal(null);

  /** `ended` is called whenever work has ended, well or not. */
  constructor(
    readonly source: Source,
    readonly ended: () => void = () => {},
  ) {}

  get busy(): boolean {
    const status = this.current.value?.status;
    return status === "running" || status === "cancelling";
  }

  /** Start, unless something runs; `done` is called when it has succeeded. */
  start(name: JobName, params: Record<string, number>, done: () => void = () => {}): void {
    if (!this.source.kernel || this.busy) return;
    const job: Job = { name, params, status: "running", error: null };
    this.current.value = job;
    this.source.request(
      name,
      params,
      (outcome) => {
        const now = this.current.peek();
        if (now?.params !== params) return;
        this.ended();
        if (!isError(outcome)) {
          this.current.value = null;
          done();
        } else {
          this.current.value =
            now.status === "cancelling" ? null : { ...now, status: "failed", error: outcome };
        }
      },
      null,
    );
  }

  cancel(): void {
    const job = this.current.peek();
    if (job?.status !== "running") return;
    this.current.value = { ...job, status: "cancelling" };
    this.source.request("cancel", {}, (outcome) => {
      const now = this.current.peek();
      if (now?.params !== job.params || outcome !== SILENT) return;
      this.current.value = { ...now, status: "failed", error: SILENT };
    });
  }

  /** Take a failure off the screen. */
  dismiss(): void {
    if (this.current.peek()?.status === "failed") this.current.value = null;
  }
}

/** The job of this name (and row), if it is the current one. */
export function jobOf(job: Job | null, name: JobName, row?: number): Job | null {
  if (job?.name !== name || (row !== undefined && job.params.row !== row)) return null;
  return job;
}
