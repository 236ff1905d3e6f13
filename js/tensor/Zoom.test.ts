// @vitest-environment happy-dom
// Zooming into a delegate: from table, tree and pane, with progress, cancel, and what is there afterwards.
import { expect, test } from "vitest";
import { type TestView, click, openReady, press, until } from "../dev/view";

const DELEGATE = 2;

async function selectDelegate(view: TestView): Promise<void> {
  click(view.one(`.etv-row[data-row="${DELEGATE}"]`));
  await until(() => view.one(".etv-detail-head .etv-badge").textContent === "delegate");
}

test("a press in the table zooms; inner rows and their bars are there, the node is open", async () => {
  const view = await openReady();
  await selectDelegate(view);
  const nodes = view.all(".etv-node[data-node]").length;
  click(view.one(`.etv-row[data-row="${DELEGATE}"] .etv-zoom`));
  await until(() => view.all(".etv-job").length === 1);
  await until(() => view.all(".etv-row[data-inner]").length === 3);
  expect(view.params("zoom")).toEqual([{ row: DELEGATE }]);
  await until(() => view.one(".etv-detail-head .etv-faithful").textContent?.includes("zoom faithful") ?? false);
  await until(() => view.all(".etv-node[data-node]").length > nodes);
  expect(view.all('.etv-node[aria-level="4"] .etv-node-worst[aria-label]').length).toBeGreaterThan(0);
});

test("a zoom executes a delegate's payload, so opening the view and walking over its rows asks for none", async () => {
  const view = await openReady();
  await selectDelegate(view);
  await until(() => view.params("tensor").length === 1);
  const rows = view.all(".etv-row").length;
  for (let row = 0; row < rows; row++) press(view.one(".etv-table"), "ArrowDown");
  await until(() => view.params("tensor").length === 2);
  press(view.one(".etv-tree"), "Home");
  for (let node = 0; node < rows; node++) press(view.one(".etv-tree"), "ArrowDown");
  expect(view.model.sent.map((message) => message.method)).not.toContain("zoom");
  expect(view.all(".etv-zoom").length).toBeGreaterThan(0);
});

test("what has changed is shown while the work still runs, and its answer ends it", async () => {
  const view = await openReady({ changesFirst: true, delay: 10 });
  await selectDelegate(view);
  click(view.one(".etv-detail-head .etv-button"));
  await until(() => view.all(".etv-row[data-inner]").length === 3);
  expect(view.all(".etv-job")).toHaveLength(1);
  expect(view.params("payload")).toHaveLength(2);
  expect(view.one('.etv-node[aria-expanded="true"] .etv-kind-delegate')).toBeDefined();
  await until(() => view.all(".etv-job").length === 0);
  expect(view.texts(".etv-inner-links button")).toHaveLength(3);
  expect(view.params("payload")).toHaveLength(2);
});

test("the key Z zooms from a row and from a node", async () => {
  const view = await openReady();
  await selectDelegate(view);
  press(view.one(".etv-table"), "z");
  await until(() => view.all(".etv-row[data-inner]").length === 3);
  press(view.one(".etv-table"), "z");
  press(view.one(".etv-tree"), "Home");
  press(view.one(".etv-tree"), "ArrowDown");
  press(view.one(".etv-tree"), "ArrowDown");
  await until(() => view.one('.etv-node[aria-selected="true"]').dataset.node === "2");
  await until(() => view.one('.etv-node[aria-selected="true"]').tabIndex === 0);
  press(view.one(".etv-tree"), "Z");
  await until(() => view.params("zoom").length === 2);
  expect(view.params("zoom")).toEqual([{ row: DELEGATE }, { row: 0 }]);
});

test("an inner row leads back to its delegate", async () => {
  const view = await openReady({ zoomed: [DELEGATE] });
  click(view.one(".etv-row[data-inner]"));
  await until(() => view.one(".etv-detail-body .etv-row-link").textContent?.startsWith("Inside") ?? false);
  click(view.one(".etv-detail-body .etv-row-link"));
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === String(DELEGATE));
  expect(view.all(".etv-inner-links button")).toHaveLength(3);
  expect(view.all(`.etv-row[data-row="${DELEGATE}"] .etv-zoom`)).toEqual([]);
});

test("a zoom that is not faithful says by how much", async () => {
  const view = await openReady({ zoomed: [0, DELEGATE] });
  await selectDelegate(view);
  expect(view.one(".etv-detail-head .etv-faithful").textContent).toContain("differs by 1.2e-6");
  expect(view.all('.etv-node .etv-zoomed[data-level="warn"]')).toHaveLength(1);
});

test("a zoom can be cancelled", async () => {
  const view = await openReady({ delay: 15 });
  await selectDelegate(view);
  click(view.all(".etv-detail-head .etv-button")[0]);
  await until(() => view.all(".etv-job .etv-button").length === 1);
  click(view.one(".etv-job .etv-button"));
  await until(() => view.all(".etv-job").length === 0);
  expect(view.all(".etv-row[data-inner]")).toEqual([]);
  expect(view.all('[role="alert"]')).toEqual([]);
});

test("a backend that refuses is said where it was pressed", async () => {
  const view = await openReady({ failing: ["zoom"] });
  await selectDelegate(view);
  click(view.all(".etv-detail-head .etv-button")[0]);
  await until(() => view.one(".etv-zoom-section").textContent?.includes("XnnpackBackend refused") ?? false);
  expect(view.one('.etv-node .etv-zoom[data-state="failed"]').dataset.tip).toContain("refused");
  click(view.one('.etv-zoom-section [aria-label="Dismiss"]'));
  await until(() => view.all(".etv-zoom-section").length === 0);
});
