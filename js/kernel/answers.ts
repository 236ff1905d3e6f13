// Answers to questions about rows, asked for once and then kept until the payload changes.
import { type Signal, signal } from "@preact/signals";
import type { WireError } from "./contract";
import { type Answer, type Source, isError } from "./source";

export type Loadable<T> =
  { status: "loading" } | { status: "ready"; value: T } | { status: "error"; error: WireError };

/** A question to the kernel, and how its answer is read. */
export interface Question<T> {
  method: string;
  params: Record<string, unknown>;
  decode: (answer: Answer) => T;
}

/** The least recently asked for is let go: a map has half a megabyte. */
const MOST = 100;

export function keyOf({ method, params }: Question<unknown>): string {
  return `${method} ${JSON.stringify(params)}`;
}

/** Ask; an answer replaces what is held, an error only what is not ready. */
function ask<T>(source: Source, question: Question<T>, held: Signal<Loadable<T>>): void {
  source.request(question.method, question.params, (outcome) => {
    if (isError(outcome)) {
      if (held.peek().status !== "ready") held.value = { status: "error", error: outcome };
      return;
    }
    try {
      held.value = { status: "ready", value: question.decode(outcome) };
    } catch (problem) {
      held.value = { status: "error", error: { type: "ViewError", message: String(problem) } };
    }
  });
}

export class Answers {
  readonly #held = new Map<string, Signal<Loadable<unknown>>>();

  constructor(readonly source: Source) {}

  /** True if there is an answer, or one is on its way. */
  has(question: Question<unknown>): boolean {
    return this.#held.has(keyOf(question));
  }

  get<T>(question: Question<T>): Signal<Loadable<T>> {
    const key = keyOf(question);
    const known = this.#held.get(key);
    if (known) {
      this.#held.delete(key);
      this.#held.set(key, known);
      return known as Signal<Loadable<T>>;
    }
    if (this.#held.size >= MOST) this.#held.delete(this.#held.keys().next().value as string);
    const held = signal<Loadable<T>>({ status: "loading" });
    this.#held.set(key, held as Signal<Loadable<unknown>>);
    ask(this.source, question, held);
    return held;
  }

  /** Ask again after a failure. */
  retry<T>(question: Question<T>): void {
    const held = this.get(question);
    if (held.peek().status !== "loading") held.value = { status: "loading" };
    ask(this.source, question, held);
  }

  clear(): void {
    this.#held.clear();
  }
}
