// @vitest-environment happy-dom
// What was found inside of a delegate stands below its row, worst first; keys and a button open and close it.
import { expect, test } from "vitest";
import { click, openReady, press, type, until } from "../dev/view";

const DELEGATE = 2;

const shown = (view: Awaited<ReturnType<typeof openReady>>): number[] =>
  view
    .all(".etv-row")
    .sort((a, b) => Number(a.getAttribute("aria-rowindex")) - Number(b.getAttribute("aria-rowindex")))
    .map((row) => Number(row.dataset.row));

test("what the background finds comes by itself, below its delegate, and its node opens", async () => {
  const view = await openReady();
  expect(view.all(".etv-inside")).toEqual([]);
  view.model.options.zoomed = [DELEGATE];
  view.model.emit("msg:custom", { event: "changed" }, []);
  await until(() => view.all(".etv-row[data-inner]").length === 3);
  const rows = shown(view);
  const at = rows.indexOf(DELEGATE);
  const inner = view.all(".etv-row[data-inner]").map((row) => Number(row.dataset.row));
  expect(new Set(rows.slice(at + 1, at + 4))).toEqual(new Set(inner));
  expect(view.one('.etv-node[aria-expanded="true"] .etv-kind-delegate')).toBeDefined();
});

test("the button and the arrows close the inside and open it; the selection goes along", async () => {
  const view = await openReady({ zoomed: [DELEGATE] });
  await until(() => view.all(".etv-row[data-inner]").length === 3);
  const inner = view.all(".etv-row[data-inner]")[0];
  click(inner);
  await until(() => inner.getAttribute("aria-selected") === "true");
  click(view.one(".etv-inside"));
  await until(() => view.all(".etv-row[data-inner]").length === 0);
  expect(view.one('.etv-row[aria-selected="true"]').dataset.row).toBe(String(DELEGATE));
  expect(view.one(".etv-inside").getAttribute("aria-expanded")).toBe("false");
  press(view.one(".etv-table"), "ArrowRight");
  await until(() => view.all(".etv-row[data-inner]").length === 3);
  press(view.one(".etv-table"), "ArrowDown");
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.inner === "true");
  press(view.one(".etv-table"), "ArrowLeft");
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === String(DELEGATE));
  press(view.one(".etv-table"), "ArrowLeft");
  await until(() => view.all(".etv-row[data-inner]").length === 0);
});

test("a search finds what is closed; a node that is selected opens its delegate", async () => {
  const view = await openReady({ zoomed: [DELEGATE] });
  click(view.one(".etv-inside"));
  await until(() => view.all(".etv-row[data-inner]").length === 0);
  const box = view.one(".etv-search input") as HTMLInputElement;
  type(box, "is:inside");
  await until(() => view.all(".etv-row[data-inner]").length === 3);
  type(box, "");
  await until(() => view.all(".etv-row[data-inner]").length === 0);
  click(view.all(".etv-node:has(.etv-kind-inner)")[0]);
  await until(() => view.all(".etv-row[data-inner]").length === 3);
  expect(view.one('.etv-row[aria-selected="true"]').dataset.inner).toBe("true");
});
