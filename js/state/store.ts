// What comes from the kernel, shared by all views of one model: the payload, the answers about
// rows (cached), progress, and the traits.
import { type Signal, signal } from "@preact/signals";
import type { Progress, WireError, WirePayload, WireTensor } from "./contract";
import { type Payload, decodePayload, openAtFirst } from "./payload";
import { type Answer, type Source, isError } from "./rpc";
import { type TensorFacts, decodeTensor } from "./tensor";
import type { Traits } from "./traits";

export type Loadable<T> =
  { status: "loading" } | { status: "ready"; value: T } | { status: "error"; error: WireError };

const BINS = 64;
const CACHED_ROWS = 500;

export class Store {
  readonly payload: Signal<Loadable<Payload>> = signal({ status: "loading" });
  readonly progress: Signal<Progress | null> = signal(null);
  readonly #tensors = new Map<number, Signal<Loadable<TensorFacts>>>();
  /** Counts the payloads: views that cache by row start again when it changes. */
  readonly generation = signal(0);

  constructor(
    readonly source: Source,
    readonly traits: Traits,
  ) {
    source.onEvent((event) => {
      if (event.event === "changed") this.loadPayload();
      if (event.event === "progress") this.#setProgress(event);
    });
  }

  /** Ask for the payload; what is on screen stays until the new one is here. */
  loadPayload(): void {
    if (this.payload.peek().status === "error") this.payload.value = { status: "loading" };
    this.#ask("payload", {}, this.payload, ({ result, buffers }) => {
      const payload = decodePayload(result as WirePayload, buffers);
      this.#tensors.clear();
      if (this.generation.peek() === 0) this.#openFirstLevels(payload);
      this.generation.value++;
      return payload;
    });
  }

  /** True if there is an answer, or one is on its way. */
  hasTensor(row: number): boolean {
    return this.#tensors.has(row);
  }

  /** The answer about a row: asked for once, then kept. */
  tensor(row: number): Signal<Loadable<TensorFacts>> {
    const known = this.#tensors.get(row);
    if (known) return known;
    if (this.#tensors.size >= CACHED_ROWS) {
      this.#tensors.delete(this.#tensors.keys().next().value as number);
    }
    const held = signal<Loadable<TensorFacts>>({ status: "loading" });
    this.#tensors.set(row, held);
    this.loadTensor(row);
    return held;
  }

  /** Ask again about a row. */
  loadTensor(row: number): void {
    const held = this.#tensors.get(row);
    if (!held) return;
    if (held.peek().status !== "loading") held.value = { status: "loading" };
    this.#ask("tensor", { row, bins: BINS }, held, ({ result, buffers }) =>
      decodeTensor(result as WireTensor, buffers),
    );
  }

  #ask<T>(method: string, params: object, held: Signal<Loadable<T>>, decode: (answer: Answer) => T): void {
    this.source.request(method, params, (outcome) => {
      if (isError(outcome)) {
        if (held.peek().status !== "ready") held.value = { status: "error", error: outcome };
        return;
      }
      try {
        held.value = { status: "ready", value: decode(outcome) };
      } catch (problem) {
        held.value = { status: "error", error: { type: "ViewError", message: String(problem) } };
      }
    });
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
