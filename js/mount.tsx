// Puts one view into an element; the function it returns takes it out again.
import { type JSX, render } from "preact";
import { App } from "./state/app";
import type { Placement } from "./state/placement";
import type { Store } from "./state/store";
import { CellView } from "./layout/CellView";
import { EtvizApp, type Frame } from "./layout/EtvizApp";

function put(view: JSX.Element, el: HTMLElement): () => void {
  render(view, el);
  return () => render(null, el);
}

/** The view alone, in a page or a side panel. */
export function mount(store: Store, el: HTMLElement, frame: Frame): () => void {
  return put(<EtvizApp app={new App(store)} frame={frame} />, el);
}

/** The view in a cell, from which it can be moved to a side panel. */
export function mountCell(store: Store, el: HTMLElement, placement: Placement): () => void {
  return put(<CellView app={new App(store, placement)} placement={placement} />, el);
}
