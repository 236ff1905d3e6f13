// Puts one view into an element; the function it returns takes it out again.
import { render } from "preact";
import { EtvizApp } from "./layout/EtvizApp";
import { createApp } from "./state/app";
import type { Store } from "./state/store";

export function mount(store: Store, el: HTMLElement, fill: boolean): () => void {
  render(<EtvizApp app={createApp(store)} fill={fill} />, el);
  return () => render(null, el);
}
