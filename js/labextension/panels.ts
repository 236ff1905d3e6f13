// The side panels of the page: one for each notebook and title. A panel follows its notebook, which
// means that it leaves its side area while another notebook is in front, unless it is pinned.
import {
  type PanelHandle,
  type PanelHost,
  type PanelRequest,
  PROTOCOL,
  type Place,
} from "../state/panelHost";
import type { Context, Lumino, Notebook, NotebookTracker, Shell } from "./jupyterlab";
import { SidePanel } from "./SidePanel";
import { widen } from "./width";

const RANK = 900;

/** What a notebook and its widget manager have in common. */
function contextOf({ request }: SidePanel): Context | undefined {
  return (request.manager as { context?: Context } | null)?.context;
}

/** Which panels of which notebooks were put aside in this browser tab: a reload does not bring them to the front. */
const hidden = {
  key: (panel: SidePanel): string => `etviz.hidden:${contextOf(panel)?.path ?? ""}:${panel.place.title}`,
  has: (panel: SidePanel): boolean => sessionStorage.getItem(hidden.key(panel)) === String(panel.place.serial),
  set(panel: SidePanel, is: boolean): void {
    if (is) sessionStorage.setItem(hidden.key(panel), String(panel.place.serial));
    else sessionStorage.removeItem(hidden.key(panel));
  },
};

export class Panels implements PanelHost {
  readonly protocol = PROTOCOL;
  readonly #panels: SidePanel[] = [];
  readonly #watched = new WeakSet<Notebook>();
  #count = 0;

  constructor(
    private readonly lumino: Lumino,
    private readonly shell: Shell,
    private readonly tracker: NotebookTracker | null,
    private readonly changed: () => void,
  ) {
    for (const signal of [tracker?.currentChanged, tracker?.widgetAdded, shell.currentChanged]) {
      signal?.connect(() => this.#follow());
    }
  }

  nextSerial(manager: object | null, title: string): number {
    return (this.#find(manager, title)?.place.serial ?? 0) + 1;
  }

  open(request: PanelRequest): PanelHandle {
    const { manager, place } = request;
    const same = this.#find(manager, place.title);
    if (same && same.place.serial > place.serial) {
      request.closed();
    } else if (same) {
      this.#replace(same, request);
    } else {
      this.#create(request);
    }
    return {
      update: (now) => this.#ifShown(request, (panel) => this.#move(panel, now)),
      reveal: () => this.#ifShown(request, (panel) => this.#reveal(panel)),
      close: () => this.#ifShown(request, (panel) => this.#remove(panel)),
    };
  }

  #find(manager: object | null, title: string): SidePanel | undefined {
    return this.#panels.find((panel) => panel.request.manager === manager && panel.place.title === title);
  }

  #ifShown(request: PanelRequest, act: (panel: SidePanel) => void): void {
    const panel = this.#panels.find((one) => one.request === request);
    if (panel) act(panel);
  }

  #create(request: PanelRequest): void {
    const id = `etviz-panel-${this.#count++}`;
    const panel = new SidePanel(this.lumino, id, request, (shown) => hidden.set(panel, !shown));
    this.#panels.push(panel);
    // JupyterLab closes a tab of a side bar by disposing of its widget.
    panel.widget.disposed.connect(() => this.#end(panel));
    this.#watch(panel);
    this.#draw(panel);
    if (this.#belongs(panel)) this.#bring(panel);
  }

  #replace(panel: SidePanel, request: PanelRequest): void {
    const before = panel.request;
    const from = panel.place.area;
    panel.replace(request);
    before.closed();
    if (from !== request.place.area && panel.widget.parent) this.#attach(panel);
    this.#draw(panel);
    if (this.#belongs(panel)) this.#reveal(panel);
  }

  #move(panel: SidePanel, place: Place): void {
    const from = panel.place.area;
    panel.place = place;
    this.#draw(panel);
    if (from !== place.area && panel.widget.parent) {
      this.#attach(panel);
      this.#reveal(panel);
    }
    this.#follow();
  }

  #remove(panel: SidePanel): void {
    const at = this.#panels.indexOf(panel);
    if (at < 0) return;
    this.#panels.splice(at, 1);
    hidden.set(panel, false);
    panel.dispose();
    this.changed();
  }

  /** As `#remove`, and the view hears of it. */
  #end(panel: SidePanel): void {
    if (!this.#panels.includes(panel)) return;
    this.#remove(panel);
    panel.request.closed();
  }

  #reveal(panel: SidePanel): void {
    if (!panel.widget.isAttached) this.#attach(panel);
    this.shell.activateById(panel.widget.id);
    widen(panel.widget);
  }

  /** Put a panel into its side area, in front unless it was put aside. */
  #bring(panel: SidePanel): void {
    this.#attach(panel);
    if (!hidden.has(panel)) this.#reveal(panel);
  }

  #attach(panel: SidePanel): void {
    this.#detach(panel);
    this.shell.add(panel.widget, panel.place.area, { rank: RANK });
    panel.restoreScroll();
  }

  #detach(panel: SidePanel): void {
    panel.keepScroll();
    panel.leaving = true;
    panel.widget.parent = null;
    panel.leaving = false;
  }

  #notebook(panel: SidePanel): Notebook | undefined {
    const context = contextOf(panel);
    return context && this.tracker?.find((notebook) => notebook.context === context);
  }

  /** The notebook in front: the tracker goes by the focus, and a notebook that was just opened may not have it yet. */
  #current(): Notebook | null | undefined {
    const front = this.shell.currentWidget;
    return this.tracker?.find((notebook) => notebook === front) ?? this.tracker?.currentWidget;
  }

  /** Whether the panel is to be seen now. */
  #belongs(panel: SidePanel): boolean {
    const current = this.#current();
    const own = this.#notebook(panel);
    return panel.place.pinned || !current || !own || own === current;
  }

  #follow(): void {
    for (const panel of this.#panels) {
      const attached = panel.widget.parent !== null;
      if (this.#belongs(panel) === attached) continue;
      if (attached) this.#detach(panel);
      else this.#bring(panel);
    }
  }

  /** A closed notebook takes its panels along: nothing could answer their questions. */
  #watch(panel: SidePanel): void {
    const notebook = this.#notebook(panel);
    if (!notebook || this.#watched.has(notebook)) return;
    this.#watched.add(notebook);
    const { context } = notebook;
    notebook.disposed.connect(() => {
      for (const own of this.#panels.filter((one) => contextOf(one) === context)) this.#remove(own);
    });
  }

  #draw(panel: SidePanel): void {
    const change = (part: Partial<Place>): void => {
      const now = { ...panel.place, ...part };
      this.#move(panel, now);
      panel.request.moved(now);
    };
    const actions = {
      pin: (pinned: boolean) => change({ pinned }),
      otherSide: () => change({ area: panel.place.area === "left" ? "right" : "left" }),
      close: () => this.#end(panel),
    };
    panel.drawBar(actions, this.#notebook(panel) !== undefined);
    this.changed();
  }
}
