// Questions to the kernel and its answers, matched by id, over custom messages.
import { type ReadonlySignal, signal } from "@preact/signals";
import type { WireError, WireMessage } from "./contract";

/** The answer to a question: JSON, and the buffers that it names. */
export interface Answer<T = unknown> {
  result: T;
  buffers: readonly DataView[];
}

/** Called with what came of a question; twice when an answer comes after its time limit. */
export type Settle = (outcome: Answer | WireError) => void;

/** Whether a kernel answers at once, later, or never again. */
export type KernelState = "ready" | "busy" | "gone";

/** What answers the questions of the view: a kernel, or a report. */
export interface Source {
  /** Ask; `limit` is the time limit in ms, null for none. */
  request(method: string, params: Record<string, unknown>, settle: Settle, limit?: number | null): void;
  /** False in a report and when the kernel is gone: nothing new can be computed. */
  readonly kernel: boolean;
  readonly state: ReadonlySignal<KernelState>;
  /** Only of a report, which can't compute: whether it has this answer for a row. */
  holds?(method: string, row: number): boolean;
  onEvent(listener: (event: WireMessage) => void): void;
  dispose(): void;
}

/** A source whose kernel can be lost. */
export interface KernelSource extends Source {
  /** The kernel has restarted or ended: what was asked is settled, and nothing is asked any more. */
  lost(): void;
}

type Receive = (content: WireMessage, buffers?: DataView[]) => void;

/** What messages need of an anywidget model. */
export interface MessageModel {
  send(content: unknown): void;
  on(event: "msg:custom", callback: Receive): void;
  off(event: "msg:custom", callback: Receive): void;
}

export const SILENT: WireError = {
  type: "Timeout",
  message: "The kernel is busy. This is shown as soon as it answers.",
};
export const GONE: WireError = {
  type: "KernelGone",
  message: "The kernel that computes this is gone. Run the cell again.",
};
export const TIME_LIMIT_MS = 30_000;

/** Without an answer for so long, the kernel is called busy. */
export const PATIENCE_MS = 1_500;

export function isError(outcome: Answer | WireError): outcome is WireError {
  return "message" in outcome;
}

/** True for what is no fault: the answer comes later, or the cell has to be run again. */
export function isWaiting(error: WireError): boolean {
  return error === SILENT || error === GONE;
}

interface Asked {
  settle: Settle;
  /** Longer work has no limit, and says nothing of how soon the kernel answers. */
  limited: boolean;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/**
 * Ids start at a random number: two pages may talk to one kernel model. `idle` tells whether the viewer knows that the
 * kernel has nothing to do (or that there is none), so that its silence means that it does not know of the view.
 */
export function kernelSource(
  model: MessageModel,
  usual = TIME_LIMIT_MS,
  idle: () => boolean = () => false,
): KernelSource {
  const pending = new Map<number, Asked>();
  const listeners: ((event: WireMessage) => void)[] = [];
  const state = signal<KernelState>("ready");
  let nextId = Math.floor(Math.random() * 2 ** 40);
  let patience: ReturnType<typeof setTimeout> | undefined;

  const wait = (): void => {
    const waiting = [...pending.values()].some(({ limited }) => limited);
    if (!waiting) return;
    patience ??= setTimeout(() => {
      patience = undefined;
      state.value = idle() ? "gone" : "busy";
    }, PATIENCE_MS);
  };
  const stopWaiting = (): void => {
    clearTimeout(patience);
    patience = undefined;
  };
  const receive = (message: WireMessage, buffers: DataView[] = []): void => {
    stopWaiting();
    state.value = "ready";
    if (message.id === undefined) {
      for (const listener of listeners) listener(message);
    } else {
      const asked = pending.get(message.id);
      clearTimeout(asked?.timer);
      pending.delete(message.id);
      asked?.settle(message.error ?? { result: message.result, buffers });
    }
    wait();
  };
  model.on("msg:custom", receive);
  const lost = (): void => {
    stopWaiting();
    state.value = "gone";
    const asked = [...pending.values()];
    pending.clear();
    for (const { settle, timer } of asked) {
      clearTimeout(timer);
      settle(GONE);
    }
  };

  return {
    state,
    get kernel() {
      return state.value !== "gone";
    },
    request(method, params, settle, limit = usual) {
      if (state.peek() === "gone") return settle(GONE);
      const id = nextId++;
      const timer = limit === null ? undefined : setTimeout(() => settle(SILENT), limit);
      pending.set(id, { settle, timer, limited: limit !== null });
      try {
        model.send({ id, method, params });
        wait();
      } catch {
        lost(); // the connection of a kernel that was shut down takes no message
      }
    },
    lost,
    onEvent: (listener) => void listeners.push(listener),
    dispose() {
      model.off("msg:custom", receive);
      stopWaiting();
      for (const { timer } of pending.values()) clearTimeout(timer);
      pending.clear();
      listeners.length = 0;
    },
  };
}
