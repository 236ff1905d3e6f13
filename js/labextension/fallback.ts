// A trusted notebook that is opened without the kernel that made it: ipywidgets has no model, and says so in place of the
// view. The output holds a static table too; that is shown instead.
import type { Notebook, OutputArea } from "./jupyterlab";

/** What ipywidgets' renderer writes, word for word. */
const MISSING = "Error displaying widget: model not found";
/** What etviz's tables are marked with (etviz/view/pages/html_tables.py). */
const OURS = "etviz-static";
const NOTE = "The view went with its kernel. This is what it was about; run the cell again for the rest.";

function areaOf(notebook: Notebook, shown: HTMLElement): OutputArea | undefined {
  return notebook.content.widgets.map(({ outputArea }) => outputArea).find((area) => area?.node.contains(shown));
}

async function replace(notebook: Notebook, shown: HTMLElement): Promise<void> {
  const area = areaOf(notebook, shown);
  const model = area?.model.get(area.widgets.findIndex(({ node }) => node.contains(shown)));
  const html = model?.data["text/html"];
  if (!area || !model || typeof html !== "string" || !html.includes(OURS)) return;
  const renderer = area.rendermime.createRenderer("text/html");
  await renderer.renderModel(model);
  const note = document.createElement("p");
  note.textContent = NOTE;
  note.className = "etviz-fallback-note";
  shown.replaceChildren(note, renderer.node);
}

function lookAt(notebook: Notebook, node: Node): void {
  if (node.nodeType === Node.TEXT_NODE && node.nodeValue === MISSING && node.parentElement) {
    void replace(notebook, node.parentElement);
  }
}

/** Do it in a notebook from now on. */
export function showFallbacks(notebook: Notebook): void {
  for (const element of notebook.node.querySelectorAll<HTMLElement>(".jupyter-widgets")) {
    if (element.textContent === MISSING) void replace(notebook, element);
  }
  const observer = new MutationObserver((records) => {
    for (const { addedNodes } of records) for (const node of addedNodes) lookAt(notebook, node);
  });
  observer.observe(notebook.node, { childList: true, subtree: true });
  notebook.disposed.connect(() => observer.disconnect());
}
