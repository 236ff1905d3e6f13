// One side panel: a bar with what one can do to it, and the element that the view draws into.
import { render } from "preact";
import type { PanelRequest, Place } from "../state/panels";
import { panelIcon } from "./icon";
import type { Lumino, Widget } from "./jupyterlab";
import { type PanelActions, PanelBar } from "./PanelBar";

export class SidePanel {
  readonly widget: Widget;
  request: PanelRequest;
  place: Place;
  /** Set while the panel is taken out of its side area, which hides it. */
  leaving = false;
  readonly #bar = document.createElement("div");
  readonly #body = document.createElement("div");
  #unmount: () => void;

  constructor(lumino: Lumino, id: string, request: PanelRequest, shown: (panel: SidePanel, is: boolean) => void) {
    const say = (is: boolean): void => shown(this, is);
    class PanelWidget extends lumino.Widget {
      override onAfterShow(): void {
        say(true);
      }
      override onAfterHide(): void {
        say(false);
      }
    }
    const node = document.createElement("div");
    this.#bar.className = "etviz-panel-bar";
    this.#body.className = "etviz-panel-body";
    node.append(this.#bar, this.#body);
    this.widget = new PanelWidget({ node });
    this.widget.id = id;
    this.widget.addClass("etviz-panel");
    this.widget.title.icon = panelIcon;
    this.widget.title.closable = true;
    this.widget.title.caption = `etviz: ${request.place.title}`;
    this.request = request;
    this.place = request.place;
    this.#unmount = request.mount(this.#body);
  }

  /** Show another view in the same panel. */
  replace(request: PanelRequest): void {
    this.#unmount();
    this.request = request;
    this.place = request.place;
    this.#unmount = request.mount(this.#body);
  }

  drawBar(actions: PanelActions, follows: boolean): void {
    render(<PanelBar place={this.place} actions={actions} follows={follows} />, this.#bar);
  }

  /** Take the view and the panel out of the page. */
  dispose(): void {
    this.#unmount();
    this.#unmount = () => {};
    render(null, this.#bar);
    this.leaving = true;
    if (!this.widget.isDisposed) this.widget.dispose();
  }
}
