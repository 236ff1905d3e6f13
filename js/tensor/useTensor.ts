// The answer about the selected row, without flicker: while a new one is on its way the old one
// stays for a moment, then makes room for a placeholder. Quick moves through rows ask once.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import type { WireError } from "../state/contract";
import type { TensorFacts } from "../state/tensor";
import { useApp } from "../ui/context";

const ASK_AFTER_MS = 60;
const STALE_FOR_MS = 150;

export interface ShownTensor {
  facts: TensorFacts | null;
  error: WireError | null;
  retry: () => void;
}

export function useTensor(row: number): ShownTensor {
  const { store } = useApp();
  const facts = useSignal<TensorFacts | null>(null);
  const error = useSignal<WireError | null>(null);
  const generation = store.generation.value;

  useEffect(() => {
    let unsubscribe = (): void => {};
    const ask = (): void => {
      unsubscribe = store.tensor(row).subscribe((state) => {
        error.value = state.status === "error" ? state.error : null;
        if (state.status === "ready") facts.value = state.value;
      });
    };
    const forget = setTimeout(() => {
      if (facts.peek()?.row !== row) facts.value = null;
    }, STALE_FOR_MS);
    const asking = setTimeout(ask, store.source.instant || store.hasTensor(row) ? 0 : ASK_AFTER_MS);
    return () => {
      clearTimeout(forget);
      clearTimeout(asking);
      unsubscribe();
    };
  }, [row, generation]);

  return { facts: facts.value, error: error.value, retry: () => store.loadTensor(row) };
}
