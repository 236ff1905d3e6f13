// @vitest-environment happy-dom
// The delegated-graph tree: nodes without rows, keys.
import { expect, test } from "vitest";
import { click, openReady, press, until } from "../dev/view";

test("an operator inside a delegate says why it has no numbers, and leads to its delegate", async () => {
  const view = await openReady();
  click(view.one(".etv-node[aria-level='3'] .etv-twisty-on"));
  await until(() => view.all(".etv-node[aria-level='4']").length > 0);
  click(view.one(".etv-node[aria-level='4']"));
  await until(() => view.one(".etv-status").textContent?.includes("runs inside XnnpackBackend") ?? false);
  click(view.one(".etv-row-link"));
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === "0");
});

test("the tree opens, closes and moves by arrows", async () => {
  const view = await openReady({ unfound: true });
  const tree = view.one(".etv-tree");
  const shown = () => view.all(".etv-node[data-node]").length;
  const before = shown();
  press(tree, "ArrowLeft");
  await until(() => shown() === 1);
  press(tree, "ArrowRight");
  await until(() => shown() === before);
  press(tree, "ArrowRight");
  await until(() => view.one('.etv-node[aria-selected="true"]').dataset.node === "1");
  expect(view.all('.etv-tree [tabindex="0"]')).toHaveLength(1);
});
