// Keeps the side panel of one model as its trait says, and tells the trait what the person did.
import { type ReadonlySignal, computed, effect, signal, untracked } from "@preact/signals";
import type { Traits } from "../kernel/traits";
import { type Area, type PanelHandle, type PanelHost, type Place, asPlace, watchHost } from "./panelHost";

export interface Placement {
  /** Where the view is asked to be; null for the cell. */
  readonly place: ReadonlySignal<Place | null>;
  /** False where the viewer has no side panels. */
  readonly available: ReadonlySignal<boolean>;
  /** Show the view in a side panel. */
  moveTo(area: Area, title: string): void;
  /** Bring the panel to the front. */
  reveal(): void;
  /** Close the panel: the view is in the cell again. */
  back(): void;
  /**
   * Whether the kernel answers. There is no panel before it does: a saved notebook brings its widgets along
   * without one. When it is gone, the panel closes and the view is in the cell.
   */
  connected(is: boolean): void;
  dispose(): void;
}

export function placeView(
  traits: Traits,
  manager: object | null,
  mount: (el: HTMLElement) => () => void,
): Placement {
  const { host, dispose } = watchHost();
  const live = signal<boolean | null>(null);
  const place = computed(() => (live.value === false ? null : asPlace(traits.panel.value)));
  let handle: PanelHandle | null = null;

  const leave = (): void => {
    handle?.close();
    handle = null;
  };
  const open = (on: PanelHost, wanted: Place): void => {
    let closed = false;
    const opened = on.open({
      place: wanted,
      manager,
      mount,
      moved: (now) => void (traits.panel.value = now),
      closed: () => {
        closed = true;
        handle = null;
        traits.panel.value = null;
      },
    });
    if (!closed) handle = opened;
  };
  const stop = effect(() => {
    const wanted = place.value;
    const on = live.value ? host.value : null;
    untracked(() => {
      if (!wanted || !on) leave();
      else if (handle) handle.update(wanted);
      else open(on, wanted);
    });
  });

  return {
    place,
    available: computed(() => host.value !== null && live.value !== false),
    moveTo(area, title) {
      const serial = host.peek()?.nextSerial(manager, title) ?? 1;
      traits.panel.value = { title, area, pinned: false, serial };
    },
    reveal: () => handle?.reveal(),
    back: () => void (traits.panel.value = null),
    connected: (is) => void (live.value = is),
    dispose() {
      stop();
      leave();
      dispose();
    },
  };
}
