// The public traits as signals: what Python sets shows here, what the view sets goes to Python
// a moment later (writes are collected for 100 ms).
import { type Signal, effect, signal } from "@preact/signals";

export interface Traits {
  selected: Signal<number | null>;
  sortBy: Signal<string>;
  descending: Signal<boolean>;
  filter: Signal<string>;
  expanded: Signal<readonly number[]>;
  height: Signal<number>;
  /** A place in a side panel (state/panels.ts), or null for the cell. */
  panel: Signal<unknown>;
}

/** What the traits need of an anywidget model. */
export interface TraitModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
}

export const DEFAULT_HEIGHT = 620;
const WRITE_DELAY_MS = 100;

export function localTraits(): Traits {
  return {
    selected: signal<number | null>(null),
    sortBy: signal("severity"),
    descending: signal(true),
    filter: signal(""),
    expanded: signal<readonly number[]>([]),
    height: signal(DEFAULT_HEIGHT),
    panel: signal<unknown>(null),
  };
}

function traitNames(traits: Traits): [string, Signal<unknown>][] {
  const { selected, sortBy, descending, filter, expanded, height, panel } = traits;
  const pairs = { selected, sort_by: sortBy, descending, filter, expanded, height, panel };
  return Object.entries(pairs) as [string, Signal<unknown>][];
}

/** Signals bound to the traits of a model, and the function that unbinds them. */
export function modelTraits(model: TraitModel): { traits: Traits; dispose: () => void } {
  const traits = localTraits();
  const disposers: (() => void)[] = [];
  const changed = new Map<string, unknown>();
  let timer: ReturnType<typeof setTimeout> | undefined;

  const write = (): void => {
    timer = undefined;
    for (const [name, value] of changed) model.set(name, value);
    changed.clear();
    model.save_changes();
  };

  for (const [name, held] of traitNames(traits)) {
    let fromModel = model.get(name) ?? held.peek();
    held.value = fromModel;
    const read = (): void => {
      changed.delete(name);
      fromModel = model.get(name);
      held.value = fromModel;
    };
    model.on(`change:${name}`, read);
    const stop = effect(() => {
      const value = held.value;
      if (value === fromModel) return;
      fromModel = value;
      changed.set(name, value);
      timer ??= setTimeout(write, WRITE_DELAY_MS);
    });
    disposers.push(stop, () => model.off(`change:${name}`, read));
  }
  const dispose = (): void => {
    if (timer !== undefined) {
      clearTimeout(timer);
      write();
    }
    for (const stop of disposers) stop();
  };
  return { traits, dispose };
}
