// Questions to the kernel and its answers, matched by id, over custom messages.
// An answer that comes after the time limit is still delivered.
import type { WireError, WireMessage } from "./contract";

export interface Answer {
  result: unknown;
  buffers: readonly DataView[];
}

export interface Source {
  /**
   * Ask; `settle` may be called twice: a time-out first, the late answer after it.
   * `limit` is the time limit in ms, null for none.
   */
  request(
    method: string,
    params: object,
    settle: (outcome: Answer | WireError) => void,
    limit?: number | null,
  ): void;
  /** True where asking costs nothing: no need to wait until a selection has settled. */
  readonly instant: boolean;
  /** False in a report: nothing can be computed that is not there. */
  readonly kernel: boolean;
  onEvent(listener: (event: WireMessage) => void): void;
  dispose(): void;
}

/** What the RPC needs of an anywidget model. */
export interface MessageModel {
  send(content: unknown): void;
  on(event: "msg:custom", callback: (content: WireMessage, buffers?: DataView[]) => void): void;
  off(event: "msg:custom", callback: (content: WireMessage, buffers?: DataView[]) => void): void;
}

export const SILENT: WireError = {
  type: "Timeout",
  message: "The kernel does not answer (busy or gone).",
};

export const TIME_LIMIT_MS = 30_000;

export function isError(outcome: Answer | WireError): outcome is WireError {
  return "message" in outcome;
}

/** Ids start at a random number: two pages may talk to one kernel model. */
export function kernelSource(model: MessageModel, usual = TIME_LIMIT_MS): Source {
  const pending = new Map<number, (outcome: Answer | WireError) => void>();
  const timers = new Map<number, ReturnType<typeof setTimeout>>();
  const listeners: ((event: WireMessage) => void)[] = [];
  let nextId = Math.floor(Math.random() * 2 ** 40);

  const receive = (message: WireMessage, buffers: DataView[] = []): void => {
    if (message.id === undefined) {
      for (const listener of listeners) listener(message);
      return;
    }
    const settle = pending.get(message.id);
    clearTimeout(timers.get(message.id));
    timers.delete(message.id);
    pending.delete(message.id);
    settle?.(message.error ?? { result: message.result, buffers });
  };
  model.on("msg:custom", receive);

  return {
    instant: false,
    kernel: true,
    request(method, params, settle, limit = usual) {
      const id = nextId++;
      pending.set(id, settle);
      if (limit !== null) {
        timers.set(
          id,
          setTimeout(() => settle(SILENT), limit),
        );
      }
      model.send({ id, method, params });
    },
    onEvent: (listener) => void listeners.push(listener),
    dispose() {
      model.off("msg:custom", receive);
      for (const timer of timers.values()) clearTimeout(timer);
      pending.clear();
      listeners.length = 0;
    },
  };
}
