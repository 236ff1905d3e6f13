// One side panel: a bar with what one can do to it, and the element that the view draws into.
import { type ComponentChildren, type JSX, render } from "preact";
import type { PanelRequest, Place } from "../state/panelHost";
import { panelIcon } from "./icon";
import type { Lumino, Widget } from "./jupyterlab";

export interface PanelActions {
  pin(pinned: boolean): void;
  otherSide(): void;
  close(): void;
}

interface ButtonProps {
  label: string;
  pressed?: boolean;
  onClick: () => void;
  children: ComponentChildren;
}

function Button({ label, pressed, onClick, children }: ButtonProps): JSX.Element {
  return (
    <button type="button" title={label} aria-label={label} aria-pressed={pressed} onClick={onClick}>
      <svg viewBox="0 0 16 16" aria-hidden="true">
        {children}
      </svg>
    </button>
  );
}

interface Props {
  place: Place;
  actions: PanelActions;
  /** False where no notebook is known that the panel could follow. */
  follows: boolean;
}

function PanelBar({ place, actions, follows }: Props): JSX.Element {
  const { title, area, pinned } = place;
  const other = area === "left" ? "right" : "left";
  return (
    <>
      <span class="etviz-panel-title" title={title}>
        {title}
      </span>
      {follows && (
        <Button
          label={pinned ? "Pinned: stays for every notebook" : "Pin: stay when another notebook is in front"}
          pressed={pinned}
          onClick={() => actions.pin(!pinned)}
        >
          <path d="M5.5 2.5h5M6.2 2.5v4.2L4.2 9.3h7.6L9.8 6.7V2.5M8 9.3v4.5" />
        </Button>
      )}
      <Button label={`Move to the ${other} side`} onClick={actions.otherSide}>
        <path
          d={
            area === "left"
              ? "M2.5 3h11v10h-11zM10 3v10M4.5 8H8M6.5 6L8.3 8L6.5 10"
              : "M2.5 3h11v10h-11zM6 3v10M11.5 8H8M9.5 6L7.7 8L9.5 10"
          }
        />
      </Button>
      <Button label="Close: back to the cell" onClick={actions.close}>
        <path d="M4 4l8 8M12 4l-8 8" />
      </Button>
    </>
  );
}

export class SidePanel {
  readonly widget: Widget;
  place: Place;
  /** Set while the panel is taken out of its side area, which hides it. */
  leaving = false;
  readonly #bar = document.createElement("div");
  readonly #body = document.createElement("div");
  #unmount: () => void;
  #scrolled: [Element, number, number][] = [];

  /** `shown` is called when the person brings the panel to the front (true) or puts it aside (false). */
  constructor(
    lumino: Lumino,
    id: string,
    public request: PanelRequest,
    shown: (is: boolean) => void,
  ) {
    const say = (is: boolean): void => {
      if (!this.leaving) shown(is);
    };
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

  /** Note how far everything is scrolled: what leaves the page forgets it. */
  keepScroll(): void {
    const all = [...this.#body.querySelectorAll("*")];
    const moved = all.filter(({ scrollTop, scrollLeft }) => scrollTop > 0 || scrollLeft > 0);
    if (this.widget.isAttached) this.#scrolled = moved.map((element) => [element, element.scrollLeft, element.scrollTop]);
  }

  /** Scroll back once the panel is laid out again. */
  restoreScroll(): void {
    const scrolled = this.#scrolled;
    this.#scrolled = [];
    if (scrolled.length === 0) return;
    requestAnimationFrame(() => {
      for (const [element, left, top] of scrolled) element.scrollTo({ left, top, behavior: "instant" });
    });
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
