// The JupyterLab plugin: the host of the side panels, the list of Inspections and its command.
import { offerHost } from "../state/panelHost";
import type {
  JupyterFrontEnd,
  Lumino,
  NotebookModule,
  NotebookTracker,
  Palette,
  Plugin,
  Restorer,
} from "./jupyterlab";
import { showFallbacks } from "./fallback";
import { Listing } from "./Listing";
import { Panels } from "./panels";
import style from "./style.css";

const COMMAND = "etviz:inspections";
const LIST_RANK = 890;
const SETTLED_MS = 400;

function addStyle(): void {
  const element = document.createElement("style");
  element.textContent = style;
  document.head.append(element);
}

function addCommand(app: JupyterFrontEnd, list: Listing, palette: Palette | null): void {
  app.commands.addCommand(COMMAND, {
    label: "Show the Inspections of This Kernel",
    caption: "List the etviz Inspections of the notebook in front, to open them in a side panel",
    execute: () => app.shell.activateById(list.widget.id),
  });
  palette?.addItem({ command: COMMAND, category: "etviz" });
}

/** Ask again when nothing has happened for a moment: the kernel hears of a closed panel a little later. */
function refreshLater(list: Listing): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(() => void list.refresh(), SETTLED_MS);
  };
}

export function createPlugin(
  lumino: Lumino,
  notebook: NotebookModule,
  palette: object,
  restorer: object,
): Plugin {
  return {
    id: "etviz:panels",
    description: "Shows etviz Inspections in side panels.",
    autoStart: true,
    optional: [notebook.INotebookTracker, palette, restorer],
    activate(app, ...services) {
      const [tracker, commands, layout] = services as [
        NotebookTracker | null,
        Palette | null,
        Restorer | null,
      ];
      addStyle();
      const list = new Listing(lumino, tracker);
      app.shell.add(list.widget, "right", { rank: LIST_RANK });
      layout?.add(list.widget, list.widget.id);
      addCommand(app, list, commands);
      const refresh = refreshLater(list);
      tracker?.forEach(showFallbacks);
      tracker?.widgetAdded.connect((_, added) => showFallbacks(added));
      notebook.NotebookActions.executed.connect(refresh);
      offerHost(new Panels(lumino, app.shell, tracker, refresh));
    },
  };
}
