// @vitest-environment happy-dom
// What if: asked of the kernel with the row and those that are pinned, shown beside what it is about.
import { expect, test } from "vitest";
import { click, openReady, press, until } from "../dev/view";

test("the outputs as they would be are shown, for the row and what is pinned with it", async () => {
  const view = await openReady();
  click(view.one('.etv-row[data-row="3"]'));
  press(view.one(".etv-table"), "p");
  click(view.one('.etv-row[data-row="5"]'));
  await until(() => view.one(".etv-what-if .etv-button").textContent === "What if this and 1 pinned were exact?");
  click(view.one(".etv-what-if .etv-button"));
  await until(() => view.texts(".etv-what-if td").includes("7: 3 → 7"));
  expect(view.params("what_if")).toEqual([{ rows: [5, 3] }]);
  expect(view.texts(".etv-what-if td")).toEqual(["0.0317", "2.10e-6", "99.99 %", "7: 3 → 7"]);
  click(view.one('.etv-row[data-row="7"]'));
  await until(() => view.all(".etv-what-if td").length === 0);
});
