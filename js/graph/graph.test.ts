// @vitest-environment happy-dom
// The graph around the selected node: which nodes, where they are, and what a click does.
import { expect, test } from "vitest";
import { edgesOf } from "../data/edges";
import { click, openReady, press, until } from "../dev/view";
import { startBox, wholeBox, zoomed } from "./camera";
import { type Around, neighbourhood, onTheWay } from "./neighbourhood";
import { place } from "./picture";

/** 0 → 1 (a delegate with 2 → 3 inside) → 4 → 5 → 6, and 0 → 6. */
const PAIRS: [number, number][] = [
  [0, 1],
  [0, 2],
  [2, 3],
  [3, 1],
  [1, 4],
  [3, 4],
  [4, 5],
  [5, 6],
  [0, 6],
];
const tree: Around = {
  nodes: 7,
  depth: Uint16Array.from([0, 0, 1, 1, 0, 0, 0]),
  size: Int32Array.from([1, 3, 1, 1, 1, 1, 1]),
  parents: Int32Array.from([-1, -1, 1, 1, -1, -1, -1]),
  isInner: (node) => node === 2 || node === 3,
};
const edges = edgesOf(
  7,
  Int32Array.from(PAIRS, ([source]) => source),
  Int32Array.from(PAIRS, ([, target]) => target),
);

test("a delegate is one node for those outside", () => {
  const around = neighbourhood(tree, edges, 4, 1);
  expect(around.nodes).toEqual([1, 4, 5]);
  expect(around.edges).toEqual([
    [1, 4],
    [4, 5],
  ]);
  expect(neighbourhood(tree, edges, 1, 2).nodes).toEqual([0, 1, 4, 5, 6]);
});

test("the delegate of a selected operator is open", () => {
  const around = neighbourhood(tree, edges, 3, 1);
  expect(around.nodes).toEqual([2, 3, 4]);
  expect(neighbourhood(tree, edges, 3, 2).edges).toContainEqual([0, 2]);
});

test("a large neighbourhood is cut, and says so", () => {
  const star = edgesOf(
    500,
    new Int32Array(499),
    Int32Array.from({ length: 499 }, (_, k) => k + 1),
  );
  const flat = { ...tree, nodes: 500, isInner: () => false };
  const around = neighbourhood(flat, star, 5, 3, 20);
  expect(around.nodes).toHaveLength(20);
  expect(around.cut).toBe(true);
  expect(around.nodes).toContain(5);
  expect(neighbourhood(tree, edges, 4).cut).toBe(false);
});

test("producers are above their consumers, and nodes do not overlap", () => {
  const picture = place(neighbourhood(tree, edges, 4, 3));
  const at = new Map(picture.nodes.map((placed) => [placed.node, placed]));
  for (const { source, target, path } of picture.lines) {
    expect(at.get(source)?.y).toBeLessThan(at.get(target)?.y ?? 0);
    expect(path).toMatch(/^M[-\d.]+ [-\d.]+[LQ]/);
  }
  for (const one of picture.nodes) {
    for (const other of picture.nodes) {
      if (one.node >= other.node) continue;
      expect(Math.abs(one.x - other.x) >= 148 || Math.abs(one.y - other.y) >= 36).toBe(true);
    }
  }
});

test("zooming keeps the point under the pointer", () => {
  const box = startBox(1000, 800, 900, 100);
  expect([box.x + box.width <= 1000, box.y]).toEqual([true, 0]);
  const nearer = zoomed(box, 0.5, 700, 50);
  expect((700 - nearer.x) / nearer.width).toBeCloseTo((700 - box.x) / box.width);
  expect(nearer.width).toBeCloseTo(box.width / 2);
  expect(zoomed(box, 1e-9, 0, 0).width).toBeGreaterThan(0);
});

test("a small picture is not magnified in a large pane, and stays in its middle", () => {
  const pane = { width: 600, height: 900 };
  for (const box of [startBox(148, 240, 74, 20, pane), wholeBox(148, 240, pane)]) {
    expect(Math.min(pane.width / box.width, pane.height / box.height)).toBeCloseTo(1.15);
    expect([box.x + box.width / 2, box.y + box.height / 2]).toEqual([74, 120]);
  }
  expect(wholeBox(1000, 800, pane)).toEqual({ x: 0, y: 0, width: 1000, height: 800 });
});

test("the graph shows the selected row; a click on a node selects it", async () => {
  const view = await openReady({ unfound: true });
  const tab = view.all(".etv-switch").find((button) => button.textContent === "Graph");
  click(tab as HTMLElement);
  await until(() => view.one(".etv-graph-empty").textContent?.startsWith("Select a row") ?? false);
  click(view.one(".etv-row"));
  await until(() => view.all(".etv-graph-node").length > 2);
  const selected = () => view.one('.etv-graph-node[aria-pressed="true"]').dataset.node;
  const before = selected();
  const other = view.all('.etv-graph-node[aria-pressed="false"]')[0];
  const wanted = other.dataset.node;
  press(other, "Enter");
  await until(() => selected() === wanted);
  expect(wanted).not.toBe(before);
  await until(() => view.all('.etv-row[aria-selected="true"]').length === 1);
  const box = () => view.one(".etv-graph-svg").getAttribute("viewBox");
  const first = box();
  view.one(".etv-graph-svg").dispatchEvent(new WheelEvent("wheel", { deltaY: -200, cancelable: true }));
  await until(() => box() !== first);
  click(view.all(".etv-switch").find((button) => button.textContent === "Program") as HTMLElement);
  await until(() => view.all(".etv-tree").length === 1);
});

test("what is on no way to the selected node, and on none from it, is told apart", () => {
  // 0 → 1 → 2 → 3, and beside it 1 → 4, 5 → 2
  const edges: [number, number][] = [[0, 1], [1, 2], [2, 3], [1, 4], [5, 2]];
  expect([...onTheWay(edges, 2)].sort()).toEqual([0, 1, 2, 3, 5]);
  expect([...onTheWay(edges, 4)].sort()).toEqual([0, 1, 4]);
  expect([...onTheWay([], 7)]).toEqual([7]);
});
