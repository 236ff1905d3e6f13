// @vitest-environment happy-dom
// The widget as a whole, over a model without a kernel: linked panes, traits, states, cleaning up.
import { expect, test } from "vitest";
import { click, openReady, openView, openWidget, until } from "./dev/view";

test("the first question to the kernel is hello", async () => {
  const view = await openReady();
  expect(view.model.sent.map((message) => message.method).slice(0, 2)).toEqual(["hello", "payload"]);
});

test("a click on a row selects it everywhere and writes the trait", async () => {
  const view = await openReady();
  const row = view.all(".etv-row")[3];
  click(row);
  await until(() => row.getAttribute("aria-selected") === "true");
  await until(() => view.one('.etv-node[aria-selected="true"]').dataset.node !== undefined);
  await until(() => view.all(".etv-histogram").length === 2);
  await until(() => view.model.state.selected === Number(row.dataset.row));
  const asked = view.model.sent.filter((message) => message.method === "tensor");
  expect(asked.map((message) => message.params)).toEqual([{ row: Number(row.dataset.row), bins: 64 }]);
});

test("what Python selects is shown, and its tree node is opened", async () => {
  const view = await openReady();
  view.model.setFromKernel("expanded", []);
  await until(() => view.all(".etv-node[data-node]").length === 1);
  view.model.setFromKernel("selected", 5);
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === "5");
  await until(() => view.all('.etv-node[aria-selected="true"]').length === 1);
  expect((view.model.state.expanded as number[]).length).toBe(0);
  await until(() => (view.model.state.expanded as number[]).includes(1));
});

test("labels that look like markup stay text", async () => {
  const evil = '<img src=x onerror="globalThis.hacked = 1"><script>hacked</script>';
  const view = await openReady({ label: evil });
  expect(view.texts(".etv-row .etv-first")).toContain(evil);
  expect(view.texts(".etv-node-label")).toContain(evil);
  expect(view.all("img, script")).toEqual([]);
});

test("a failed payload shows the message, and Retry asks again", async () => {
  const view = await openView({ failing: ["payload"] });
  await until(() => view.one(".etv-failed-message").textContent?.includes("etdump.etdp") ?? false);
  view.model.options.failing = [];
  click(view.one(".etv-failed .etv-button"));
  await until(() => view.all(".etv-row").length > 0);
});

test("when the kernel says it changed, the payload is fetched again and stays on screen meanwhile", async () => {
  const view = await openReady();
  view.model.emit("msg:custom", { event: "changed" });
  expect(view.all(".etv-row").length).toBeGreaterThan(0);
  await until(() => view.model.sent.filter((message) => message.method === "payload").length === 2);
});

test("progress shows and goes", async () => {
  const view = await openReady();
  view.model.emit("msg:custom", { event: "progress", label: "Introduced gaps", done: 3, total: 20 });
  await until(() => view.one(".etv-progress").getAttribute("aria-valuenow") === "3");
  view.model.emit("msg:custom", { event: "progress", label: "", done: 0, total: 0 });
  await until(() => view.all(".etv-progress").length === 0);
});

test("two views of one model share the selection; closing all leaves nothing behind", async () => {
  const widget = await openWidget();
  const first = await widget.render();
  const second = await widget.render();
  await until(() => second.all(".etv-row").length > 0);
  expect(widget.model.sent.filter((message) => message.method === "payload")).toHaveLength(1);
  click(first.all(".etv-row")[1]);
  await until(() => second.all('.etv-row[aria-selected="true"]').length === 1);
  first.close();
  second.close();
  widget.dispose();
  expect(first.el.childNodes).toHaveLength(0);
  expect(widget.model.listeners()).toBe(0);
});
