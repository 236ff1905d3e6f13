// The answer to a question about the selected row, and what stands in for it while there is none.
import { useSignal } from "@preact/signals";
import type { ComponentChildren, JSX } from "preact";
import { useEffect } from "preact/hooks";
import { type Question, keyOf } from "../kernel/answers";
import { NOT_IN_REPORT } from "../kernel/container";
import type { WireError } from "../kernel/contract";
import { isWaiting } from "../kernel/source";
import { RetryButton } from "../ui/Button";
import { useApp } from "../ui/context";
import { LevelIcon } from "../ui/Icon";

const ASK_AFTER_MS = 60;
const STALE_FOR_MS = 150;

export interface ShownAnswer<T> {
  facts: T | null;
  /** What is shown is the answer to an earlier question. */
  stale: boolean;
  error: WireError | null;
  retry: () => void;
}

/**
 * Without flicker: while a new answer is on its way the old one stays (another row's only for a moment, then it
 * makes room for a placeholder). Quick moves through rows ask once.
 */
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
    const atOnce = !store.source.kernel || store.answers.has(question);
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

/** Keeps the room of some charts; becomes visible only when the wait is long enough to notice. */
function Placeholder({ charts }: { charts: number }): JSX.Element {
  if (charts === 1) {
    return (
      <div class="etv-placeholder etv-placeholder-chart" role="status" aria-label="Loading the chart">
        <span class="etv-bone etv-bone-chart" />
      </div>
    );
  }
  return (
    <div class="etv-placeholder" role="status" aria-label="Loading the tensors">
      <span class="etv-bone etv-bone-short" />
      <span class="etv-bone etv-bone-chart" />
      <span class="etv-bone etv-bone-short" />
      <span class="etv-bone etv-bone-chart" />
    </div>
  );
}

function Failure({ error, retry }: { error: WireError; retry: () => void }): JSX.Element {
  if (error.type === NOT_IN_REPORT || isWaiting(error)) {
    return (
      <p class="etv-status" data-level="unknown">
        {error.message}
      </p>
    );
  }
  return (
    <div class="etv-failure" role="alert">
      <p class="etv-failure-text">
        <LevelIcon level="bad" />
        <span>{error.message}</span>
      </p>
      <RetryButton retry={retry} />
    </div>
  );
}

interface Props<T> {
  answer: ShownAnswer<T>;
  charts?: number;
  children: (facts: T) => ComponentChildren;
}

/** What `children` make of an answer; why there is none, or a placeholder. */
export function Answered<T>({ answer, charts = 1, children }: Props<T>): JSX.Element {
  const { facts, error, retry } = answer;
  if (error) return <Failure error={error} retry={retry} />;
  return facts ? <>{children(facts)}</> : <Placeholder charts={charts} />;
}
