// Puts one view into an element; the function it returns takes it out again.
import { type JSX, render } from "preact";
import { EtvizApp, type Frame } from "./layout/EtvizApp";
import { CellView } from "./panel/CellView";
import { type App, createApp } from "./state/app";
import type { Placement } from "./state/placement";
import type { Store } from "./state/store";

function put(view: JSX.Element, el: HTMLElement): () => void {
  render(view, el);
  return () => render(null, el);
}

/** The view alone, in a page or a side panel. */
export function mount(store: Store, el: HTMLElement, frame: Frame): () => void {
  return put(<EtvizApp app={createApp(store)} frame={frame} />, el);
}

/** The view in a cell, from which it can be moved to a side panel. */
export function mountCell(store: Store, el: HTMLElement, placement: Placement): () => void {
  const app: App = { ...createApp(store), placement };
  return put(<CellView app={app} placement={placement} />, el);
}
