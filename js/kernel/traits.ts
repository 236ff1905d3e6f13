// The public traits as signals: what Python sets shows here, what the view sets goes to Python
// a moment later (writes are collected for 100 ms).
import { type Signal, effect, signal } from "@preact/signals";

/** What the traits need of an anywidget model. */
export interface TraitModel {
  get(name: string): unknown;
  set(name: string, value: unknown): void;
  save_changes(): void;
  on(event: string, callback: () => void): void;
  off(event: string, callback: () => void): void;
}

const WRITE_DELAY_MS = 100;

/** Signals for the traits, with the values that they have at first. */
export function localTraits() {
  return {
    selected: signal<number | null>(null),
    sortBy: signal("introduced_severity"),
    descending: signal(true),
    filter: signal(""),
    expanded: signal<readonly number[]>([]),
    height: signal(620),
    /** Commands that are run when the view has something to show. */
    commands: signal<readonly string[]>([]),
    /** A place in a side panel (state/panelHost.ts), or null for the cell. */
    panel: signal<unknown>(null),
  };
}

export type Traits = ReturnType<typeof localTraits>;

function traitNames(traits: Traits): [string, Signal<unknown>][] {
  const { selected, sortBy, descending, filter, expanded, height, commands, panel } = traits;
  const pairs = { selected, sort_by: sortBy, descending, filter, expanded, height, commands, panel };
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
