// An anywidget model without a kernel: answers the view's questions from the sample.
import type { WireError, WireMessage } from "../kernel/contract";
import type { Answer } from "../kernel/source";
import { type SampleOptions, samplePayload } from "./samplePayload";
import { sampleChannels, sampleMap, sampleScatter, sampleTensor } from "./sampleTensor";
import { sampleTimeline } from "./sampleTimeline";

type Callback = (...values: unknown[]) => void;
type Params = Record<string, unknown>;

interface Question {
  id: number;
  method: string;
  params: Params;
}

export interface SampleModelOptions extends SampleOptions {
  delay?: number;
  /** Methods that answer with an error, or not at all. */
  failing?: string[];
  silent?: string[];
  /** The payload comes with the model. */
  opened?: boolean;
  /** What Python wants to be done at first. */
  commands?: readonly string[];
  /** The row that Python has selected. */
  selected?: number;
  /** How many changes of the Inspection the kernel counts. */
  changes?: number;
  /** Longer work says that something has changed before it answers. */
  changesFirst?: boolean;
}

const FAILURES: Record<string, WireError> = {
  zoom: {
    type: "BackendError",
    message:
      "XnnpackBackend refused the zoomed program: aten.gelu.default has no partition. Zoom another call.",
  },
};
const FAILURE: WireError = {
  type: "ArtifactError",
  message: "etdump.etdp: truncated at byte 4096 of 9120. Copy it from the device again.",
};
const STEPS = 8;

export class SampleModel {
  readonly state: Record<string, unknown> = {
    selected: null,
    sort_by: "introduced_severity",
    descending: true,
    filter: "",
    expanded: [],
    height: 620,
  };
  readonly sent: Question[] = [];
  saves = 0;
  readonly #listeners = new Map<string, Set<Callback>>();
  #cancelled = false;

  constructor(readonly options: SampleModelOptions = {}) {
    if (options.selected !== undefined) this.state.selected = options.selected;
    if (options.commands) this.state.commands = options.commands;
    if (options.opened) this.state._opening = samplePayload(options);
  }

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

  send(content: Question): void {
    this.sent.push(content);
    setTimeout(() => this.#answer(content), this.options.delay ?? 0);
  }

  #say(message: WireMessage, buffers: readonly DataView[] = []): void {
    this.emit("msg:custom", message, buffers);
  }

  #answer({ id, method, params }: Question): void {
    const { failing = [], silent = [] } = this.options;
    if (silent.includes(method)) return;
    if (failing.includes(method)) return this.#say({ id, error: FAILURES[method] ?? FAILURE });
    if (method === "zoom" || method === "attribution") {
      this.#cancelled = false;
      return this.#work(id, method, params, 0);
    }
    if (method === "what_if") {
      const outputs = [{ name: "0: [1, 10] float32", before: 0.0317, after: 2.1e-6, top1: [7, 3, 7] }];
      return this.#say({ id, result: { ok: true, rows: params.rows, outputs } });
    }
    if (method === "explain") {
      const rows = [["fc.weight", "float32", "every element (relative error 1)"]];
      const result = { ok: true, title: `About ${String(params.what)}`, head: ["name", "dtype", "pte"], rows, text: "That is all." };
      return this.#say({ id, result });
    }
    if (method === "note") {
      this.options.notes = { ...this.options.notes, [Number(params.row)]: String(params.text) };
      this.#say({ event: "changed" });
      return this.#say({ id, result: { ok: true } });
    }
    if (method === "method") {
      const { methods = [] } = this.options;
      const chosen = String(params.method);
      this.options.methods = [chosen, ...methods.filter((name) => name !== chosen)];
      this.options.layers = 2;
      if (this.options.tokens) this.options.tokens.call = chosen.split(":").map(Number) as [number, number];
      for (const [name, value] of [["selected", null], ["filter", ""], ["expanded", []]] as const) this.setFromKernel(name, value);
      this.#say({ event: "changed" });
      return this.#say({ id, result: { ok: true } });
    }
    if (method === "cancel") this.#cancelled = true;
    const { result, buffers } = this.#data(method, params) ?? {
      result: { protocol: 1, changes: this.options.changes ?? 0 },
      buffers: [],
    };
    this.#say({ id, result }, buffers);
  }

  #data(method: string, params: Params): Answer | null {
    switch (method) {
      case "payload":
        return samplePayload(this.options);
      case "tensor":
        return sampleTensor(Number(params.row), Number(params.bins));
      case "timeline":
        return sampleTimeline(Number(params.run));
      case "error_map":
        return sampleMap(params);
      case "scatter":
        return sampleScatter(Number(params.bins));
      case "channels":
        return sampleChannels(Number(params.axis));
      default:
        return null;
    }
  }

  /** Longer work: steps with progress, then what it found is in the payload. */
  #work(id: number, method: string, params: Params, done: number): void {
    if (this.#cancelled || done === STEPS) this.#say({ event: "progress", label: method, done: 0, total: 0 });
    if (this.#cancelled)
      return this.#say({ id, error: { type: "Cancelled", message: "The work was cancelled." } });
    if (done < STEPS) {
      this.#say({ event: "progress", label: method, done, total: STEPS });
      setTimeout(() => this.#work(id, method, params, done + 1), this.options.delay ?? 0);
      return;
    }
    if (method === "zoom") {
      this.options.zoomed = [...(this.options.zoomed ?? []), Number(params.row)];
    } else {
      this.options.attributed = Number(params.output ?? 0);
    }
    const answer = (): void => this.#say({ id, result: { ok: true } });
    if (this.options.changesFirst) setTimeout(answer, 20 * (this.options.delay ?? 0));
    else answer();
    this.#say({ event: "changed" });
  }
}
