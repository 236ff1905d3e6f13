// How a widget and JupyterLab's side panels talk: the widget asks the host, which the prebuilt
// extension puts on the page, to open a panel, and draws its view into it. Where there is no host
// (other viewers), there are no side panels.
import { type ReadonlySignal, type Signal, signal } from "@preact/signals";

export type Area = "left" | "right";

/** Where a view is shown; the kernel keeps it, so that it outlives the page. */
export interface Place {
  title: string;
  area: Area;
  /** Stays when another notebook is in front. */
  pinned: boolean;
  /** Of two views with one title, the one that was asked for later has the higher number. */
  serial: number;
}

export interface PanelRequest {
  place: Place;
  /** The widget manager of the notebook that the view belongs to. */
  manager: object | null;
  /** Draws the view; the function it returns takes it out again. */
  mount(el: HTMLElement): () => void;
  /** The person moved or pinned the panel. */
  moved(place: Place): void;
  /** The person closed the panel, or another view took its place. */
  closed(): void;
}

export interface PanelHandle {
  update(place: Place): void;
  reveal(): void;
  close(): void;
}

export interface PanelHost {
  readonly protocol: number;
  open(request: PanelRequest): PanelHandle;
  /** The number for a view that wants the panel of this title. */
  nextSerial(manager: object | null, title: string): number;
}

export const PROTOCOL = 1;
const KEY = Symbol.for("etviz.panels");
const ARRIVED = "etviz:panels";

type Page = typeof globalThis & { [KEY]?: PanelHost };

/** Put the host on the page; every module instance finds it there. */
export function offerHost(host: PanelHost): void {
  (globalThis as Page)[KEY] = host;
  globalThis.dispatchEvent?.(new Event(ARRIVED));
}

function hostOfPage(): PanelHost | null {
  const host = (globalThis as Page)[KEY];
  return host?.protocol === PROTOCOL ? host : null;
}

/** The host, also when it comes later than the widget. */
export function watchHost(): { host: ReadonlySignal<PanelHost | null>; dispose: () => void } {
  const host: Signal<PanelHost | null> = signal(hostOfPage());
  const look = (): void => void (host.value = hostOfPage());
  globalThis.addEventListener?.(ARRIVED, look);
  return { host, dispose: () => globalThis.removeEventListener?.(ARRIVED, look) };
}

/** A trait's value as a place; anything else is no place. */
export function asPlace(value: unknown): Place | null {
  if (typeof value !== "object" || value === null) return null;
  const { title, area, pinned, serial } = value as Partial<Record<keyof Place, unknown>>;
  if (typeof title !== "string" || (area !== "left" && area !== "right")) return null;
  return { title, area, pinned: pinned === true, serial: typeof serial === "number" ? serial : 0 };
}
