// @vitest-environment happy-dom
// Keys, the palette, commands from Python and links: all of them the same commands.
import { expect, test } from "vitest";
import { commandsOfLink, linkOf } from "../data/link";
import { click, openReady, press, type, until } from "../dev/view";
import { COMMANDS } from "./commands";

test("ids are there once, and so are keys but those that step through tokens where there are some", () => {
  const keys = COMMANDS.flatMap(({ id, key }) => (key && !id.startsWith("token.") ? [key] : []));
  expect(new Set(keys).size).toBe(keys.length);
  const tokens = COMMANDS.filter(({ id }) => id.startsWith("token."));
  expect(tokens.flatMap(({ key }) => key ?? [])).toEqual(["[", "]"]);
  expect(new Set(COMMANDS.map(({ id }) => id)).size).toBe(COMMANDS.length);
});

test("? lists every command, Escape closes the list", async () => {
  const view = await openReady();
  press(view.one(".etv-row"), "?");
  await until(() => view.all(".etv-help code").length > COMMANDS.length);
  expect(view.texts(".etv-help-line code")).toContain("row.select 8");
  press(view.one(".etv-help"), "Escape");
  await until(() => view.all(".etv-help").length === 0);
});

test("a full stop goes to the next row beyond its precision, a comma back, brackets through what was selected", async () => {
  const view = await openReady({ layers: 12 });
  const row = (): number => Number(view.one('.etv-row[aria-selected="true"]').dataset.row);
  await until(() => row() === 9);
  press(view.one(".etv-table"), ".");
  await until(() => row() === 17);
  press(view.one(".etv-table"), ".");
  await until(() => row() === 41);
  press(view.one(".etv-table"), ",");
  await until(() => row() === 17);
  press(view.one(".etv-table"), "[");
  await until(() => row() === 41);
  press(view.one(".etv-table"), "]");
  await until(() => row() === 17);
});

test("a letter in the search box is a letter; after > it finds a command", async () => {
  const view = await openReady();
  const input = view.one(".etv-search input") as HTMLInputElement;
  press(input, "g");
  expect(view.all(".etv-graph")).toEqual([]);
  press(view.one(".etv-row"), "/");
  type(input, ">chan");
  await until(() => view.texts(".etv-offer-text")[0] === "Show the channels");
  expect(view.one(".etv-count").textContent).toBe("17 of 19 rows");
  press(input, "Enter");
  await until(() => view.one('.etv-chart-tabs [aria-selected="true"]').textContent === "Channels");
  expect(input.value).toBe("");
});

test("> is followed by what is typed, / has the query replaced by it", async () => {
  const view = await openReady();
  const input = view.one(".etv-search input") as HTMLInputElement;
  const selected = (): (number | null)[] => [input.selectionStart, input.selectionEnd];
  press(view.one(".etv-row"), ">");
  await until(() => input.value === ">" && selected().join() === "1,1");
  press(input, "Escape");
  press(input, "Escape");
  type(input, "norm");
  press(view.one(".etv-row"), "/");
  await until(() => selected().join() === "0,4");
});

test("a completion is taken with the arrow and Enter", async () => {
  const view = await openReady();
  const input = view.one(".etv-search input") as HTMLInputElement;
  input.focus();
  type(input, "is:mis");
  await until(() => view.texts(".etv-offer-text")[0] === "is:mismatch");
  press(input, "ArrowDown");
  await until(() => view.one(".etv-offer").getAttribute("aria-selected") === "true");
  press(input, "Enter");
  await until(() => input.value === "is:mismatch ");
  await until(() => view.texts(".etv-empty-title").includes("No row passes the filters"));
});

test("a query that can't be answered says why and hides nothing", async () => {
  const view = await openReady();
  type(view.one(".etv-search input") as HTMLInputElement, "severity>many");
  await until(() => view.one(".etv-search-problem").textContent?.includes("many is no number") ?? false);
  expect(view.one(".etv-search input").getAttribute("aria-invalid")).toBe("true");
  expect(view.one(".etv-count").textContent).toBe("17 of 19 rows");
});

test("a pinned row stays on top, also when the filter leaves it out", async () => {
  const view = await openReady();
  click(view.one('.etv-row[data-row="3"]'));
  press(view.one(".etv-table"), "p");
  await until(() => view.all(".etv-row[data-pinned]").length === 1);
  type(view.one(".etv-search input") as HTMLInputElement, "no such operator");
  await until(() => view.all(".etv-row").length === 1);
  expect(view.one(".etv-row").dataset.row).toBe("3");
});

test("the filter leaves the tree what it leaves the table", async () => {
  const view = await openReady();
  const nodes = view.all(".etv-node").length;
  type(view.one(".etv-search input") as HTMLInputElement, "layer_norm");
  await until(() => view.all(".etv-node").length < nodes);
  const shown = view.all(".etv-node[data-muted]").length;
  expect(shown).toBe(0);
});

test("commands from Python are run when the rows are there", async () => {
  const view = await openReady({ commands: ["filter.set kind:kernel,delegate", "row.select 7", "tab.map"] });
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === "7");
  await until(() => view.one('.etv-chart-tabs [aria-selected="true"]').textContent === "Error map");
  expect((view.one(".etv-search input") as HTMLInputElement).value).toBe("kind:kernel,delegate");
});

test("a link and what it shows are each other's inverse", () => {
  const link = linkOf({ row: 8, tab: "map", at: [0, 3, 17], filter: "severity>10 op:add", graph: true });
  expect(commandsOfLink(link)).toEqual([
    "filter.set severity>10 op:add",
    "row.select 8",
    "tab.map",
    "row.element 0,3,17",
    "tree.graph",
  ]);
  expect(commandsOfLink("#row=8&tab=map&at=0,3,17")).toEqual(["row.select 8", "tab.map", "row.element 0,3,17"]);
  expect(commandsOfLink("")).toEqual([]);
});
