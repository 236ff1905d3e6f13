// The answer to a question about the selected row, without flicker: while a new one is on its way
// the old one stays (another row's only for a moment, then it makes room for a placeholder). Quick
// moves through rows ask once.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Question, keyOf } from "../state/answers";
import type { WireError } from "../state/contract";
import { useApp } from "../ui/context";

const ASK_AFTER_MS = 60;
const STALE_FOR_MS = 150;

export interface ShownAnswer<T> {
  facts: T | null;
  /** What is shown is the answer to an earlier question. */
  stale: boolean;
  error: WireError | null;
  retry: () => void;
}

export function useAnswer<T extends { row: number }>(question: Question<T>): ShownAnswer<T> {
  const { store } = useApp();
  const shown = useSignal<{ key: string; facts: T } | null>(null);
  const error = useSignal<WireError | null>(null);
  const generation = store.generation.value;
  const key = keyOf(question);
  const { row } = question.params;

  useEffect(() => {
    let unsubscribe = (): void => {};
    const ask = (): void => {
      unsubscribe = store.answers.get(question).subscribe((state) => {
        error.value = state.status === "error" ? state.error : null;
        if (state.status === "ready") shown.value = { key, facts: state.value };
      });
    };
    const forget = setTimeout(() => {
      if (shown.peek()?.facts.row !== row) shown.value = null;
    }, STALE_FOR_MS);
    const atOnce = store.source.instant || store.answers.has(question);
    const asking = setTimeout(ask, atOnce ? 0 : ASK_AFTER_MS);
    return () => {
      clearTimeout(forget);
      clearTimeout(asking);
      unsubscribe();
    };
  }, [key, generation]);

  const held = shown.value;
  return {
    facts: held?.facts ?? null,
    stale: held !== null && held.key !== key,
    error: error.value,
    retry: () => store.answers.retry(question),
  };
}
