// What comes from the kernel, shared by all views of one model: the payload, the answers about
// rows, longer work with its progress, and the traits.
import { type Signal, batch, signal } from "@preact/signals";
import { Answers, type Loadable } from "../kernel/answers";
import type { Progress, WireError, WirePayload } from "../kernel/contract";
import { type Answer, type Source, isError } from "../kernel/source";
import type { Traits } from "../kernel/traits";
import { type Payload, decodePayload } from "../data/payload";
import { hasValues } from "../data/columns";
import { worstOf } from "../data/rank";
import { openAtFirst } from "../data/tree";
import { Jobs } from "./jobs";

/** By what rows are sorted unless somebody has chosen. */
const USUAL_ORDER = "introduced_severity";

/** The row of an execution whose own error is worst; null if it has none. */
function worstOfRun(payload: Payload, run: number): number | null {
  const rows = Array.from({ length: payload.compared }, (_, row) => row).filter((row) => payload.number("run", row) === run);
  const worst = worstOf(payload, rows, USUAL_ORDER);
  return worst < 0 ? null : worst;
}

export class Store {
  readonly payload: Signal<Loadable<Payload>> = signal({ status: "loading" });
  /** Why what is on screen is not the newest; null if it is. */
  readonly outdated: Signal<WireError | null> = signal(null);
  readonly progress: Signal<Progress | null> = signal(null);
  readonly answers: Answers;
  readonly jobs: Jobs;
  /** Counts the payloads: views that cache by row start again when it changes. */
  readonly generation = signal(0);
  /** Delegate calls whose insides were opened in the tree. */
  readonly #looked = new Set<number>();
  #asked = 0;
  /** The last question whose answer is shown: an answer to an earlier one comes too late. */
  #shown = 0;

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
    const turn = ++this.#asked;
    this.source.request("payload", {}, (outcome) => {
      if (turn < this.#shown) return;
      if (isError(outcome)) this.#fail(outcome);
      else if (this.show(outcome as Answer<WirePayload>)) this.#shown = turn;
    });
  }

  /** Show another method of the program. */
  showMethod(method: string): void {
    if (this.source.kernel) return this.jobs.start("method", { method });
    this.source.request("method", { method }, (outcome) => {
      if (isError(outcome)) return;
      const { expanded, filter, selected } = this.traits;
      batch(() => {
        [selected.value, filter.value, expanded.value] = [null, "", []];
        this.loadPayload();
      });
    });
  }

  /** Show a payload; false if it can't be read. */
  show(answer: Answer<WirePayload>): boolean {
    try {
      const value = decodePayload(answer);
      batch(() => {
        this.answers.clear();
        const held = this.payload.peek();
        const other = held.status === "ready" && held.value.method !== value.method;
        if (other) this.#looked.clear();
        if (this.generation.peek() === 0 || other) this.#firstPaint(value);
        else if (held.status === "ready") this.#followFinding(held.value, value);
        this.#openInsides(value);
        this.generation.value++;
        this.payload.value = { status: "ready", value };
        this.outdated.value = null;
      });
      return true;
    } catch (problem) {
      this.#fail({ type: "ViewError", message: String(problem) });
      return false;
    }
  }

  /** What is on screen is better than an error. */
  #fail(error: WireError): void {
    if (this.payload.peek().status === "ready") this.outdated.value = error;
    else this.payload.value = { status: "error", error };
  }

  /** A delegate that was looked into is opened, once. */
  #openInsides({ trees, zooms }: Payload): void {
    const fresh = zooms.calls.filter((call) => !this.#looked.has(call));
    for (const call of fresh) this.#looked.add(call);
    const { expanded } = this.traits;
    const nodes = fresh.map((call) => trees.program.rowNode[call] ?? -1);
    const closed = nodes.filter((node) => node >= 0 && !expanded.peek().includes(node));
    if (closed.length > 0) expanded.value = [...expanded.peek(), ...closed];
  }

  /** What is seen first: the finding, and the tree's first levels. */
  #firstPaint(value: Payload): void {
    const { beside, runs, summary, tokens, trees } = value;
    const { expanded, filter, selected, sortBy } = this.traits;
    if (beside.length > 0 && sortBy.peek() === USUAL_ORDER) sortBy.value = "change";
    if (expanded.peek().length === 0) expanded.value = openAtFirst(trees.program);
    // Of a language model's calls, those before the one that is open only made its state.
    const own = tokens && runs ? Math.max(...runs.numbers) : null;
    if (own !== null && filter.peek() === "") filter.value = `run:${own}`;
    const found = summary.finding?.row ?? null;
    const elsewhere = own !== null && found !== null && value.number("run", found) !== own;
    // Where nothing was compared, there are still times to rank.
    if (value.compared === 0 && filter.peek() === "" && hasValues(value.column("latency_ms"))) {
      filter.value = "is:any";
      if (sortBy.peek() === USUAL_ORDER) sortBy.value = "latency_ms";
    }
    selected.value ??= elsewhere ? worstOfRun(value, own) : found;
  }

  /** The selected finding moves with it: a zoom may name an operator inside the delegate. */
  #followFinding({ summary: before }: Payload, { summary: after }: Payload): void {
    const { selected } = this.traits;
    const row = before.finding?.row ?? null;
    if (after.finding && row !== null && selected.peek() === row) selected.value = after.finding.row;
  }

  #setProgress(event: Partial<Progress>): void {
    const { label = "", done = 0, total = 0 } = event;
    this.progress.value = total > 0 ? { label, done, total } : null;
  }
}
