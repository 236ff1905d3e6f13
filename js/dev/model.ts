// An anywidget model without a kernel: answers the view's questions from the sample.
import type { WireMessage } from "../state/contract";
import { type SampleOptions, samplePayload } from "./sample";
import { sampleTensor } from "./sampleTensor";

type Callback = (...values: unknown[]) => void;

export interface SampleModelOptions extends SampleOptions {
  delay?: number;
  /** Methods that answer with an error, or not at all. */
  failing?: string[];
  silent?: string[];
}

export class SampleModel {
  readonly state: Record<string, unknown> = {
    selected: null,
    sort_by: "severity",
    descending: true,
    filter: "",
    expanded: [],
    height: 620,
  };
  readonly sent: { id: number; method: string; params: Record<string, number> }[] = [];
  saves = 0;
  readonly #listeners = new Map<string, Set<Callback>>();

  constructor(readonly options: SampleModelOptions = {}) {}

  get(name: string): unknown {
    return this.state[name];
  }

  set(name: string, value: unknown): void {
    this.state[name] = value;
  }

  /** A change that comes from Python. */
  setFromKernel(name: string, value: unknown): void {
    this.state[name] = value;
    this.emit(`change:${name}`);
  }

  save_changes(): void {
    this.saves++;
  }

  on(event: string, callback: Callback): void {
    this.#listeners.set(event, (this.#listeners.get(event) ?? new Set()).add(callback));
  }

  off(event: string, callback: Callback): void {
    this.#listeners.get(event)?.delete(callback);
  }

  emit(event: string, ...values: unknown[]): void {
    for (const callback of this.#listeners.get(event) ?? []) callback(...values);
  }

  listeners(): number {
    return [...this.#listeners.values()].reduce((sum, one) => sum + one.size, 0);
  }

  send(content: { id: number; method: string; params: Record<string, number> }): void {
    this.sent.push(content);
    setTimeout(() => this.#answer(content), this.options.delay ?? 0);
  }

  #answer({ id, method, params }: { id: number; method: string; params: Record<string, number> }): void {
    const { failing = [], silent = [] } = this.options;
    if (silent.includes(method)) return;
    const answer = (message: WireMessage, buffers: DataView[] = []): void =>
      this.emit("msg:custom", message, buffers);
    if (failing.includes(method)) {
      return answer({
        id,
        error: {
          type: "ArtifactError",
          message: "etdump.etdp: truncated at byte 4096 of 9120. Copy it from the device again.",
        },
      });
    }
    if (method === "payload") {
      const { result, buffers } = samplePayload(this.options);
      return answer({ id, result }, buffers);
    }
    if (method === "tensor") {
      const { result, buffers } = sampleTensor(params.row, params.bins);
      return answer({ id, result }, buffers);
    }
    answer({ id, result: { protocol: 1 } });
  }
}
