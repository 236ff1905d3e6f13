// What comes from the kernel, shared by all views of one model: the payload, the answers about
// rows, longer work with its progress, and the traits.
import { type Signal, signal } from "@preact/signals";
import { Answers, type Loadable, ask } from "./answers";
import type { Progress, WirePayload } from "./contract";
import { Jobs } from "./jobs";
import { type Payload, decodePayload, openAtFirst } from "./payload";
import type { Answer, Source } from "./rpc";
import type { Traits } from "./traits";

export class Store {
  readonly payload: Signal<Loadable<Payload>> = signal({ status: "loading" });
  readonly progress: Signal<Progress | null> = signal(null);
  readonly answers: Answers;
  readonly jobs: Jobs;
  /** Counts the payloads: views that cache by row start again when it changes. */
  readonly generation = signal(0);

  constructor(
    readonly source: Source,
    readonly traits: Traits,
  ) {
    this.answers = new Answers(source);
    this.jobs = new Jobs(source, () => (this.progress.value = null));
    source.onEvent((event) => {
      if (event.event === "changed") this.loadPayload();
      if (event.event === "progress") this.#setProgress(event);
    });
  }

  /** Ask for the payload; what is on screen stays until the new one is here. */
  loadPayload(): void {
    if (this.payload.peek().status === "error") this.payload.value = { status: "loading" };
    const decode = ({ result, buffers }: Answer): Payload => {
      const payload = decodePayload(result as WirePayload, buffers);
      this.answers.clear();
      if (this.generation.peek() === 0) this.#openFirstLevels(payload);
      this.generation.value++;
      return payload;
    };
    ask(this.source, { method: "payload", params: {}, decode }, this.payload);
  }

  #openFirstLevels(payload: Payload): void {
    const { expanded } = this.traits;
    if (expanded.peek().length === 0) expanded.value = openAtFirst(payload.trees.program);
  }

  #setProgress(event: Partial<Progress>): void {
    const { label = "", done = 0, total = 0 } = event;
    this.progress.value = total > 0 ? { label, done, total } : null;
  }
}
