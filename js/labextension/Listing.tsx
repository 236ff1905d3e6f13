// The list of a kernel's Inspections, in a side panel of its own.
import { type ReadonlySignal, signal } from "@preact/signals";
import { type JSX, render } from "preact";
import type { Area } from "../state/panelHost";
import { listIcon } from "./icon";
import { type Listed, listInspections, openInspection } from "./inspections";
import type { Kernel, Lumino, Notebook, NotebookTracker, Widget } from "./jupyterlab";

type State =
  | { status: "none" }
  | { status: "asking" }
  | { status: "ready"; inspections: readonly Listed[] }
  | { status: "failed"; message: string };

const LEVELS: Record<string, string> = { ok: "✓", warn: "!", bad: "✗" };

interface Props {
  state: ReadonlySignal<State>;
  refresh: () => void;
  open: (listed: Listed, area: Area) => void;
}

function Entry({ listed, open }: { listed: Listed; open: Props["open"] }): JSX.Element {
  const { title, name, verdict, level, area } = listed;
  return (
    <li>
      <button type="button" class="etviz-entry" onClick={() => open(listed, area ?? "right")}>
        <span class="etviz-entry-title">{title}</span>
        <code>{name}</code>
        {area && <span class="etviz-entry-area">in the {area} panel</span>}
        {verdict && (
          <span class="etviz-entry-verdict" data-level={level}>
            {level && LEVELS[level]} {verdict}
          </span>
        )}
      </button>
      {!area && (
        <button
          type="button"
          class="etviz-entry-left"
          onClick={() => open(listed, "left")}
          title="Open in the left side panel"
        >
          on the left
        </button>
      )}
    </li>
  );
}

function Entries({ state, open }: Pick<Props, "state" | "open">): JSX.Element {
  const now = state.value;
  if (now.status === "none") return <p>No notebook with a kernel is in front.</p>;
  if (now.status === "asking") return <p>Waiting for the kernel, which answers when it is idle.</p>;
  if (now.status === "failed") return <p role="alert">The kernel could not list them: {now.message}</p>;
  if (now.inspections.length === 0) {
    return (
      <p>
        This kernel has no Inspection yet. <code>etviz.debug</code> and <code>etviz.load</code> make one.
      </p>
    );
  }
  return (
    <ul>
      {now.inspections.map((listed) => (
        <Entry key={listed.token} listed={listed} open={open} />
      ))}
    </ul>
  );
}

function List({ state, refresh, open }: Props): JSX.Element {
  return (
    <>
      <header>
        <h2>Inspections</h2>
        <button
          type="button"
          onClick={refresh}
          title="Ask the kernel again"
          aria-label="Ask the kernel again"
        >
          <svg viewBox="0 0 16 16" aria-hidden="true">
            <path d="M13 8a5 5 0 1 1-1.6-3.7M13 2.2v3h-3" />
          </svg>
        </button>
      </header>
      <Entries state={state} open={open} />
    </>
  );
}

function kernelOf(notebook: Notebook | null | undefined): Kernel | null {
  return notebook?.sessionContext.session?.kernel ?? null;
}

export class Listing {
  readonly widget: Widget;
  readonly #state = signal<State>({ status: "none" });
  readonly #watched = new WeakSet<Notebook>();
  #asked = 0;

  constructor(
    lumino: Lumino,
    private readonly tracker: NotebookTracker | null,
  ) {
    const shown = (): void => void this.refresh();
    class ListWidget extends lumino.Widget {
      override onAfterShow(): void {
        shown();
      }
    }
    const node = document.createElement("div");
    const refresh = (): void => void this.refresh();
    const open = (listed: Listed, area: Area): void => void this.#open(listed, area);
    render(<List state={this.#state} refresh={refresh} open={open} />, node);
    this.widget = new ListWidget({ node });
    this.widget.id = "etviz-inspections";
    this.widget.addClass("etviz-list");
    this.widget.title.icon = listIcon;
    this.widget.title.caption = "etviz: Inspections of this kernel";
    tracker?.currentChanged.connect((_, notebook) => this.#watch(notebook));
  }

  /** Ask the kernel of the notebook in front; nothing is asked while the list is not seen. */
  async refresh(): Promise<void> {
    if (!this.widget.isVisible) return;
    const kernel = kernelOf(this.tracker?.currentWidget);
    const asked = ++this.#asked;
    if (!kernel) {
      this.#state.value = { status: "none" };
      return;
    }
    if (this.#state.peek().status !== "ready") this.#state.value = { status: "asking" };
    const next = await listInspections(kernel).then(
      (inspections): State => ({ status: "ready", inspections }),
      (problem: unknown): State => ({ status: "failed", message: String(problem) }),
    );
    if (asked === this.#asked) this.#state.value = next;
  }

  async #open(listed: Listed, area: Area): Promise<void> {
    const kernel = kernelOf(this.tracker?.currentWidget);
    if (!kernel) return;
    try {
      await openInspection(kernel, listed.token, area);
      await this.refresh();
    } catch (problem) {
      this.#state.value = { status: "failed", message: String(problem) };
    }
  }

  #watch(notebook: Notebook | null): void {
    this.#state.value = { status: "none" };
    if (notebook && !this.#watched.has(notebook)) {
      this.#watched.add(notebook);
      notebook.sessionContext.kernelChanged.connect(() => void this.refresh());
    }
    void this.refresh();
  }
}
