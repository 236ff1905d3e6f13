// @vitest-environment happy-dom
// Two programs in one view: ratios in the table, one selection in both trees, both histograms.
import { expect, test } from "vitest";
import { click, openReady, until } from "../dev/view";

test("the table is ranked by how much worse the other is, and has both errors beside one another", async () => {
  const view = await openReady({ beside: "second", uncompared: 0, unfound: true });
  await until(() => view.one('[data-column="change"]').getAttribute("aria-sort") === "descending");
  const columns = view.all(".etv-head-cell").map((cell) => cell.dataset.column);
  expect(columns.slice(0, 4)).toEqual(["op", "change", "introduced_severity", "introduced_severity_2"]);
  const first = [...view.all(".etv-row")].sort((a, b) => Number(a.getAttribute("aria-rowindex")) - Number(b.getAttribute("aria-rowindex")))[0];
  expect(Number(first.dataset.row) % 10).toBe(5);
});

test("one selection in both trees, from either of them and from the table", async () => {
  const view = await openReady({ beside: "second", uncompared: 0, unfound: true });
  const selected = (): string[] => view.all('.etv-node[aria-selected="true"]').map((node) => node.dataset.node ?? "");
  expect(view.texts(".etv-tree-label")).toEqual(["first", "second"]);
  const [own, other] = view.all(".etv-tree");
  expect(other.getAttribute("aria-label")).toContain("second");
  click(view.one('.etv-row[data-row="5"]'));
  await until(() => selected().length === 2);
  expect(selected()[0]).toBe(selected()[1]);
  const target = [...other.querySelectorAll<HTMLElement>(".etv-node[data-node]")].find((node) => node.querySelector(".etv-kind-kernel"));
  if (!target) throw new Error("no kernel in the second tree");
  click(target);
  await until(() => own.querySelector('[aria-selected="true"]')?.getAttribute("data-node") === target.dataset.node);
  await until(() => view.one('.etv-row[aria-selected="true"]') !== null);
});
