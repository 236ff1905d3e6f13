// @vitest-environment happy-dom
// The gap table: order, filters, keys, and why it is empty.
import { expect, test } from "vitest";
import { click, openReady, openView, press, type, until } from "../dev/view";

test("sorting writes the traits, shift-click adds a second key", async () => {
  const view = await openReady();
  click(view.one('[data-column="rmse"]'));
  await until(() => view.one('[data-column="rmse"]').getAttribute("aria-sort") === "descending");
  click(view.one('[data-column="kind"]'), { shiftKey: true });
  await until(() => view.one('[data-column="kind"] .etv-sort-mark').textContent === "▲2");
  expect(view.one('[data-column="rmse"] .etv-sort-mark').textContent).toBe("▼1");
  await until(() => view.model.state.sort_by === "rmse");
});

test("the filter narrows the rows, and says how many are left", async () => {
  const view = await openReady();
  type(view.one(".etv-search input") as HTMLInputElement, "layer_norm");
  await until(() => view.texts(".etv-row .etv-first").every((op) => op.includes("layer_norm")));
  expect(view.one(".etv-count").textContent).toBe("4 of 19 rows");
  type(view.one(".etv-search input") as HTMLInputElement, "nothing like this");
  await until(() => view.texts(".etv-empty-title").includes("No row passes the filters"));
});

test("instructions that were not compared are one click away, with their reason", async () => {
  const view = await openReady({ unfound: true });
  const button = view.all(".etv-switch").find((one) => one.textContent?.startsWith("not compared"));
  expect(button?.textContent).toContain("2");
  click(button as HTMLElement);
  await until(() => view.all(".etv-row").length === 19);
  click(view.one('.etv-row[data-row="18"]'));
  await until(
    () => view.one(".etv-tensor-pane .etv-status").textContent?.includes("overwritten in place") ?? false,
  );
  expect(view.params("tensor")).toEqual([]);
});

test("arrows move the selection in the table, one row at a time", async () => {
  const view = await openReady();
  const table = view.one(".etv-table");
  press(table, "Home");
  await until(() => view.one('.etv-row[aria-selected="true"]').getAttribute("aria-rowindex") === "2");
  press(table, "ArrowDown");
  await until(() => view.one('.etv-row[aria-selected="true"]').getAttribute("aria-rowindex") === "3");
  press(table, "End");
  await until(() => view.one('.etv-row[aria-selected="true"]').getAttribute("aria-rowindex") === "18");
  expect(view.all('.etv-table [tabindex="0"]')).toHaveLength(1);
});

test("a key that moves nothing does not take the focus from the search box later", async () => {
  const view = await openReady();
  const table = view.one(".etv-table");
  press(table, "End");
  await until(() => view.one('.etv-row[aria-selected="true"]').getAttribute("aria-rowindex") === "18");
  const input = view.one(".etv-search input") as HTMLInputElement;
  const focused = () => (input.getRootNode() as Document).activeElement;
  input.focus();
  press(table, "ArrowDown");
  await until(() => focused()?.getAttribute("aria-selected") === "true");
  input.focus();
  type(input, "layer_norm");
  await until(() => view.one(".etv-count").textContent?.endsWith("4 of 19 rows") ?? false);
  expect(focused()).toBe(input);
});

test("nothing compared: the view says why, and ranks the instructions by latency", async () => {
  const view = await openView({ empty: true });
  await until(() => view.all(".etv-row").length === 19);
  expect(view.one('[aria-sort="descending"]').dataset.column).toBe("latency_ms");
  expect(view.all('[data-column="severity"]')).toEqual([]);
  click(view.one(".etv-bar .etv-quiet"));
  await until(() => view.texts(".etv-empty-title").includes("No gaps to show"));
  expect(view.one(".etv-empty").textContent).toContain("No ETRecord was given");
  click(view.one(".etv-table .etv-button"));
  await until(() => view.all(".etv-row").length === 19);
});
