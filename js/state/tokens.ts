// Which token of a language model is looked at, and the call that is opened for it.
import { computed, effect, signal } from "@preact/signals";
import type { Payload } from "../data/payload";
import type { Tokens } from "../data/tokens";
import type { Store } from "./store";
import type { Read } from "./view";

/** A key that is held passes many tokens: the call of the one that is rested on is opened. */
const REST_MS = 350;

export class TokenState {
  readonly tokens = computed<Tokens | null>(() => this.payload.value?.tokens ?? null);
  readonly #chosen = signal(-1);
  #wanted = "";
  #rest: ReturnType<typeof setTimeout> | undefined;

  /** The row that is looked at: the one chosen, else that of the open call, else the first to look at. */
  readonly row = computed(() => {
    const tokens = this.tokens.value;
    if (!tokens) return -1;
    if (this.#chosen.value >= 0 && this.#chosen.value < tokens.rows) return this.#chosen.value;
    return tokens.call ? tokens.rowOf(...tokens.call) : tokens.first;
  });

  /** True if the rows of the token's call are shown. */
  readonly isOpen = computed(() => {
    const tokens = this.tokens.value;
    const row = this.row.value;
    return tokens?.call != null && tokens.call[0] === tokens.prompt[row] && tokens.call[1] === tokens.step[row];
  });

  constructor(
    private readonly store: Store,
    private readonly payload: Read<Payload | null>,
  ) {
    // What was asked for while something else ran is opened when that has ended.
    effect(() => {
      if (store.jobs.busy || !this.#wanted || !this.payload.value) return;
      const wanted = this.#wanted;
      this.#wanted = "";
      if (wanted !== this.payload.value.method) store.showMethod(wanted);
    });
  }

  /** Look at a token; `rest` waits a moment before its call is opened. */
  readonly choose = (row: number, rest = false): void => {
    const tokens = this.tokens.peek();
    if (!tokens || row < 0 || row >= tokens.rows) return;
    this.#chosen.value = row;
    clearTimeout(this.#rest);
    if (rest) this.#rest = setTimeout(() => this.open(), REST_MS);
    else this.open();
  };

  /** The next (1) or previous (-1) token. */
  step(by: -1 | 1): void {
    this.choose(this.row.peek() + by, true);
  }

  /** Show the rows of the call of the token that is looked at. */
  open(): void {
    const tokens = this.tokens.peek();
    const row = this.row.peek();
    if (!tokens || row < 0 || this.isOpen.peek()) return;
    this.openCall(tokens.prompt[row], tokens.step[row]);
  }

  /** Show the rows of a call. */
  openCall(prompt: number, step: number): void {
    const name = `${prompt}:${step}`;
    if (this.store.jobs.busy) this.#wanted = name;
    else this.store.showMethod(name);
  }
}
