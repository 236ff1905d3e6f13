// @vitest-environment happy-dom
// Attribution: asked for once, its sum beside the profile that draws the shares.
import { expect, test } from "vitest";
import { click, openReady, until } from "../dev/view";

test("a press computes the shares; their sum and the ranking are there afterwards", async () => {
  const view = await openReady();
  expect(view.texts(".etv-rank .etv-switch")).toEqual(["total", "introduced", "latency"]);
  click(view.one(".etv-attribute"));
  await until(() => view.all(".etv-job").length === 1);
  await until(() => view.all(".etv-sum").length === 1);
  expect(view.all(".etv-attribute, .etv-job")).toEqual([]);
  expect(view.one(".etv-sum").textContent).toContain("102");
  expect(view.texts(".etv-rank .etv-switch")).toContain("attribution");
  expect(view.params("attribution")).toEqual([{}]);
});

test("another output is attributed when it is chosen", async () => {
  const view = await openReady({ attributed: 0 });
  const select = view.one(".etv-attribution select") as HTMLSelectElement;
  select.value = "1";
  select.dispatchEvent(new Event("change", { bubbles: true }));
  await until(() => (view.one(".etv-attribution select") as HTMLSelectElement).value === "1");
  await until(() => view.params("attribution").some(({ output }) => output === 1));
});

test("a failure says why, and can be tried again", async () => {
  const view = await openReady({ failing: ["attribution"] });
  click(view.one(".etv-attribute"));
  await until(() => view.one('.etv-job[role="alert"]').textContent?.includes("truncated") ?? false);
  view.model.options.failing = [];
  click(view.one(".etv-job .etv-button"));
  await until(() => view.all(".etv-sum").length === 1);
});

test("ranking by attribution sorts the table and changes the bars of the tree", async () => {
  const view = await openReady({ attributed: 0 });
  expect(view.one(".etv-tree-head .etv-node-worst").textContent).toBe("worst");
  click(view.all(".etv-rank .etv-switch")[2]);
  await until(() => view.one('[data-column="attribution"]').getAttribute("aria-sort") === "descending");
  expect(view.one(".etv-tree-head .etv-node-worst").textContent).toBe("sum");
  await until(() => view.model.state.sort_by === "attribution");
});
