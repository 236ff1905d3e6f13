// Longer work that a view starts in the kernel: zooming into a delegate, attributing the error.
// One at a time; it can be cancelled; a failure stays on screen until it is dismissed or tried again.
import { signal } from "@preact/signals";
import type { WireError } from "../kernel/contract";
import { SILENT, type Source, isError } from "../kernel/source";

export type JobName = "zoom" | "attribution" | "what_if" | "method" | "explain";
type Params = Record<string, number | string | readonly number[]>;

export interface Job {
  /** Tells a job from an earlier one of the same name, whose answer may come late. */
  id: number;
  name: JobName;
  params: Params;
  status: "running" | "cancelling" | "failed";
  error: WireError | null;
}

export class Jobs {
  readonly #current = signal<Job | null>(null);
  #started = 0;

  /** `ended` is called whenever work has ended, well or not. */
  constructor(
    readonly source: Source,
    readonly ended: () => void = () => {},
  ) {}

  get busy(): boolean {
    const status = this.#current.value?.status;
    return status === "running" || status === "cancelling";
  }

  /** The job of this name (and row), if it is the current one. */
  of(name: JobName, row?: number): Job | null {
    const job = this.#current.value;
    return job?.name === name && (row === undefined || job.params.row === row) ? job : null;
  }

  /** Start, unless something runs; `done` is called with what came of it when it has succeeded. */
  start(name: JobName, params: Params, done: (result: unknown) => void = () => {}): void {
    if (!this.source.kernel || this.busy) return;
    const id = ++this.#started;
    this.#current.value = { id, name, params, status: "running", error: null };
    this.source.request(
      name,
      params,
      (outcome) => {
        const job = this.#current.peek();
        if (job?.id !== id) return;
        this.ended();
        const failed = isError(outcome) && job.status !== "cancelling";
        this.#current.value = failed ? { ...job, status: "failed", error: outcome } : null;
        if (!isError(outcome)) done(outcome.result);
      },
      null,
    );
  }

  cancel(): void {
    const job = this.#current.peek();
    if (job?.status !== "running") return;
    this.#current.value = { ...job, status: "cancelling" };
    this.source.request("cancel", {}, (outcome) => {
      if (this.#current.peek()?.id !== job.id || outcome !== SILENT) return;
      this.#current.value = { ...job, status: "failed", error: SILENT };
    });
  }

  /** Take a failure off the screen. */
  dismiss(): void {
    if (this.#current.peek()?.status === "failed") this.#current.value = null;
  }
}
