// Everything that a key, the palette, a link or Python can ask of a view, by an id that stays.
import { batch } from "@preact/signals";
import type { App } from "./app";
import type { Chart, TreeMode } from "./view";

export interface Command {
  id: string;
  title: string;
  /** The key, where there is one. */
  key?: string;
  /** `argument` is what stands behind the id and a blank. */
  run(app: App, argument: string): void;
  /** False while it can't do anything; not given: always. */
  can?(app: App): boolean;
  /** An example of its argument, for commands that do nothing without one. */
  argument?: string;
}

/** What the kernel explains on request (etviz/view/widget/explanations.py). */
export const EXPLANATIONS = [
  { name: "constants", text: "Constants", tip: "The constants that the row reads, in the reference and in the .pte", ofRow: true },
  { name: "repro", text: "Write a repro", tip: "A folder that shows the row's own error without etviz", ofRow: true },
  { name: "ladder", text: "Ladder", tip: "Between which stages of the program values change", ofRow: false },
  { name: "suggest", text: "Suggest a fix", tip: "Operators to keep in float or off the backend, measured; takes minutes", ofRow: false },
];

function explanation({ name, text, tip }: (typeof EXPLANATIONS)[number]): Command {
  return {
    id: `explain.${name}`,
    title: `${text}: ${tip[0].toLowerCase()}${tip.slice(1)}`,
    run: (app) => app.explain(name, app.selection.row.peek()),
    can: ({ payload, selection }) => {
      const row = selection.row.peek();
      const known = payload.peek();
      return known !== null && row >= 0 && row < known.compared && known.explanations.includes(name);
    },
  };
}

function rank(name: string, column: string, key?: string): Command {
  return {
    id: `rank.${name}`,
    title: `Rank by ${name}`,
    ...(key && { key }),
    run: ({ rows }) => rows.rankBy(column),
    can: ({ payload }) => payload.peek()?.column(column) !== undefined,
  };
}

function tab(name: Chart, title: string, key: string): Command {
  const run = ({ view }: App): void =>
    batch(() => {
      view.chart.value = name;
      view.charting.value++;
    });
  return { id: `tab.${name}`, title: `Show ${title}`, key, run };
}

function pane(id: string, title: string, mode: TreeMode, tree: "program" | "modules"): Command {
  return {
    id,
    title,
    run: ({ view }) =>
      batch(() => {
        view.treeName.value = tree;
        view.treeMode.value = mode;
      }),
  };
}

function numbers(text: string): number[] {
  return text.split(",").map(Number);
}

const hasTokens = ({ tokens }: App): boolean => tokens.tokens.peek() !== null;

const isKnown = ({ payload }: App): boolean => payload.peek() !== null;

export const COMMANDS: readonly Command[] = [
  { id: "search.focus", title: "Search rows", key: "/", run: ({ view }) => void view.searching.value++ },
  {
    id: "commands.open",
    title: "Run a command",
    key: ">",
    run: ({ view }) =>
      batch(() => {
        view.palette.value = "";
        view.searching.value++;
      }),
  },
  { id: "help.open", title: "List all keys", key: "?", run: ({ view }) => void (view.help.value = !view.help.peek()) },
  { id: "row.worse", title: "Next row beyond its precision", key: ".", run: (app) => app.worse(1), can: isKnown },
  { id: "row.worse-back", title: "Previous row beyond its precision", key: ",", run: (app) => app.worse(-1), can: isKnown },
  { id: "row.first", title: "The row to look at first", key: "h", run: (app) => app.goFirst(), can: isKnown },
  { id: "token.back", title: "Previous token of a language model", key: "[", run: ({ tokens }) => tokens.step(-1), can: hasTokens },
  { id: "token.next", title: "Next token", key: "]", run: ({ tokens }) => tokens.step(1), can: hasTokens },
  {
    id: "token.first",
    title: "The token to look at first",
    run: ({ tokens }) => tokens.choose(tokens.tokens.peek()?.first ?? -1),
    can: hasTokens,
  },
  {
    id: "row.back",
    title: "Back to what was selected before",
    key: "[",
    run: ({ selection }) => selection.step(-1),
    can: (app) => !hasTokens(app),
  },
  { id: "row.forward", title: "Forward again", key: "]", run: ({ selection }) => selection.step(1), can: (app) => !hasTokens(app) },
  { id: "row.pin", title: "Pin the row on top of the table, or let it go", key: "p", run: (app) => app.togglePin() },
  {
    id: "row.zoom",
    title: "Look into the delegate call",
    key: "z",
    run: (app) => app.zoom(app.selection.row.peek()),
    can: ({ payload, selection, store }) =>
      store.source.kernel && (payload.peek()?.zooms.canZoom(selection.row.peek()) ?? false),
  },
  {
    id: "row.what-if",
    title: "What if the row, and those that are pinned, were exact",
    key: "e",
    run: (app) => app.whatIf(app.selection.row.peek()),
    can: ({ payload, selection, store }) => {
      const row = selection.row.peek();
      return store.source.kernel && row >= 0 && row < (payload.peek()?.compared ?? 0);
    },
  },
  ...EXPLANATIONS.map(explanation),
  {
    id: "row.select",
    title: "Select a row",
    argument: "8",
    run: ({ selection, payload }, argument) => {
      const row = Number(argument);
      if (Number.isInteger(row) && row >= 0 && row < (payload.peek()?.rows ?? 0)) selection.selectRow(row);
    },
  },
  {
    id: "row.element",
    title: "Look at an element of the row in the map",
    argument: "0,3,17",
    run: (app, argument) => {
      const index = numbers(argument);
      if (index.every((at) => Number.isInteger(at) && at >= 0)) app.lookAt(index);
    },
  },
  rank("introduced", "introduced_severity", "i"),
  rank("total", "severity", "t"),
  rank("attribution", "attribution", "a"),
  rank("latency", "latency_ms", "l"),
  rank("quantization", "error_steps"),
  { id: "filter.set", title: "Filter", argument: "severity>10", run: ({ store }, text) => void (store.traits.filter.value = text) },
  { id: "filter.clear", title: "Show all rows", key: "x", run: ({ rows }) => rows.clearFilters() },
  {
    id: "filter.look",
    title: "Only rows beyond their precision",
    key: "w",
    run: ({ store }) => void (store.traits.filter.value = "is:look"),
  },
  tab("histogram", "the histograms", "1"),
  tab("map", "the maps", "2"),
  tab("channels", "the channels", "3"),
  tab("scatter", "the scatter", "4"),
  pane("tree.program", "Show the program", "tree", "program"),
  pane("tree.modules", "Show the modules", "tree", "modules"),
  {
    id: "tree.graph",
    title: "Graph or tree",
    key: "g",
    run: ({ view }) =>
      batch(() => {
        view.treeName.value = "program";
        view.treeMode.value = view.treeMode.peek() === "graph" ? "tree" : "graph";
      }),
    can: ({ payload }) => (payload.peek()?.edges.count ?? 0) > 0,
  },
  {
    id: "attribution.run",
    title: "Attribute the output's error",
    run: ({ store }) => store.jobs.start("attribution", {}),
    can: ({ store, payload }) => store.source.kernel && payload.peek()?.attribution === null,
  },
  { id: "view.large", title: "Full screen, or back", key: "f", run: ({ view }) => void view.large.value++ },
  {
    id: "strip.time",
    title: "Timeline, or error along the program",
    key: "m",
    run: ({ view }) => void (view.strip.value = view.strip.peek() === "time" ? "error" : "time"),
    can: ({ payload }) => (payload.peek()?.timed ?? null) !== null,
  },
  {
    id: "profile.png",
    title: "Save the profile as PNG",
    run: ({ view }) => void view.pictures.value++,
    can: ({ profile }) => profile.peek() !== null,
  },
  { id: "copy.pandas", title: "Copy the rows as pandas", run: (app) => app.copy("pandas") },
  { id: "copy.csv", title: "Copy the rows as CSV", run: (app) => app.copy("csv") },
  { id: "copy.markdown", title: "Copy the rows as Markdown", run: (app) => app.copy("markdown") },
  { id: "copy.link", title: "Copy a link to what is shown", key: "y", run: (app) => app.copy("link") },
];

const BY_ID = new Map(COMMANDS.map((command) => [command.id, command]));

function canRun(command: Command, app: App): boolean {
  return command.can?.(app) ?? true;
}

/** Run what stands in a text, an id and perhaps an argument; false if there is no such command. */
export function runCommand(app: App, text: string): boolean {
  const [id, ...argument] = text.trim().split(" ");
  const command = BY_ID.get(id);
  if (command && canRun(command, app)) command.run(app, argument.join(" "));
  return command !== undefined;
}

/** Run the command of a key; false if it has none, or none that can do anything now. */
export function runKey(app: App, key: string): boolean {
  const command = COMMANDS.find((one) => one.key === key && canRun(one, app));
  if (!command) return false;
  command.run(app, "");
  return true;
}

/** True if the letters of `typed` stand in `text` in their order. */
function isLike(text: string, typed: string): boolean {
  let at = 0;
  for (const letter of typed.toLowerCase().replaceAll(" ", "")) {
    at = text.toLowerCase().indexOf(letter, at) + 1;
    if (at === 0) return false;
  }
  return true;
}

/** The commands that a few letters may mean, the likeliest first. */
export function commandsLike(app: App, typed: string): Command[] {
  const has = ({ title, id }: Command): boolean => `${title} ${id}`.toLowerCase().includes(typed.toLowerCase());
  const found = COMMANDS.filter(
    (command) => !command.argument && canRun(command, app) && isLike(`${command.title} ${command.id}`, typed),
  );
  return [...found.filter(has), ...found.filter((command) => !has(command))];
}
