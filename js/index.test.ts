// @vitest-environment happy-dom
// The widget as a whole, over a model without a kernel: linked panes, traits, states, cleaning up.
import { expect, test } from "vitest";
import { click, openReady, openView, openWidget, press, until } from "./dev/view";

test("the first question to the kernel is hello", async () => {
  const view = await openReady();
  expect(view.model.sent.map((message) => message.method).slice(0, 2)).toEqual(["hello", "payload"]);
});

test("a payload that came with the model is shown before the kernel has said anything", async () => {
  const view = await openView({ opened: true, silent: ["hello"] });
  await until(() => view.all(".etv-row").length > 0);
  expect(view.params("payload")).toEqual([]);
  expect(view.all(".etv-kernel")).toEqual([]);
});

test("when the Inspection has changed since the model was opened, the payload is asked for", async () => {
  const view = await openView({ opened: true, changes: 1 });
  await until(() => view.params("payload").length === 1);
});

test("while the kernel is busy a grey line says so; it goes with the first answer", async () => {
  const view = await openView({ opened: true, silent: ["hello", "tensor"] });
  await until(() => view.all(".etv-row").length > 0);
  click(view.all(".etv-row")[2]);
  await until(() => view.one(".etv-kernel").textContent?.includes("busy") ?? false, 5000);
  expect(view.all('[role="alert"]')).toEqual([]);
  view.model.emit("msg:custom", { event: "progress", label: "", done: 0, total: 0 });
  await until(() => view.all(".etv-kernel").length === 0);
});

test("when the kernel is gone the view stays, says it, and nothing pulses for ever", async () => {
  const view = await openReady({ silent: ["tensor", "zoom"] });
  const rows = view.all(".etv-row").length;
  click(view.one('.etv-row[data-zoomable="true"]'));
  await until(() => view.params("tensor").length === 1);
  press(view.one(".etv-table"), "z");
  view.model.emit("msg:custom", { event: "progress", label: "zoom", done: 3, total: 20 });
  await until(() => view.all(".etv-progress").length === 1);
  view.model.emit("comm_live_update");
  await until(() => view.one(".etv-kernel").dataset.kernel === "gone");
  await until(() => view.all(".etv-bone, .etv-progress, .etv-job-bar, .etv-zoom").length === 0);
  expect(view.all(".etv-row")).toHaveLength(rows);
  expect(view.all('[role="alert"]')).toEqual([]);
});

test("a payload that can't be read does not take away the one on screen", async () => {
  const view = await openReady();
  const rows = view.all(".etv-row").length;
  view.model.options.version = 99;
  view.model.emit("msg:custom", { event: "changed" });
  await until(() => view.one(".etv-kernel").textContent?.includes("not the newest") ?? false);
  expect(view.all(".etv-row")).toHaveLength(rows);
  view.model.options.version = 1;
  click(view.one(".etv-kernel .etv-button"));
  await until(() => view.all(".etv-kernel").length === 0);
});

test("first paint is the finding: its sentence, its row, and the worst introduced error on top", async () => {
  const view = await openReady();
  expect(view.one(".etv-finding").textContent).toContain("introduced it: channel 5 of 16 is ×0.25");
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === "9");
  expect(view.one('[role="columnheader"][aria-sort="descending"]').textContent).toContain("introduced");
  await until(() => view.params("tensor").length === 1);
});

test("a zoom that moves the finding moves its selection, and no other", async () => {
  const view = await openReady();
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === "9");
  view.model.options.found = 4;
  view.model.emit("msg:custom", { event: "changed" });
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === "4");
  click(view.one('.etv-row[data-row="5"]'));
  view.model.options.found = 6;
  view.model.emit("msg:custom", { event: "changed" });
  await until(() => view.params("payload").length === 3);
  expect(view.one('.etv-row[aria-selected="true"]').dataset.row).toBe("5");
});

test("what was selected before stays selected", async () => {
  const view = await openReady({ opened: true, selected: 3 });
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === "3");
});

test("a click on a row selects it everywhere and writes the trait", async () => {
  const view = await openReady();
  const row = view.all(".etv-row")[3];
  click(row);
  await until(() => row.getAttribute("aria-selected") === "true");
  await until(() => view.one('.etv-node[aria-selected="true"]').dataset.node !== undefined);
  await until(() => view.all(".etv-histogram").length === 2);
  await until(() => view.model.state.selected === Number(row.dataset.row));
  // The row of the finding may have been asked for before, where the machine is slow.
  expect(view.params("tensor").at(-1)).toEqual({ row: Number(row.dataset.row), bins: 64 });
});

test("what Python selects is shown, and its tree node is opened", async () => {
  const view = await openReady();
  await until(() => {
    view.model.setFromKernel("expanded", []);
    return view.all(".etv-node[data-node]").length === 1;
  });
  view.model.setFromKernel("selected", 5);
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === "5");
  await until(() => view.all('.etv-node[aria-selected="true"]').length === 1);
  await until(() => (view.model.state.expanded as number[]).includes(1));
});

test("labels that look like markup stay text", async () => {
  const evil = '<img src=x onerror="globalThis.hacked = 1"><script>hacked</script>';
  const view = await openReady({ label: evil });
  for (const place of [".etv-row .etv-first", ".etv-node-label"])
    expect(view.texts(place).filter((text) => text.endsWith(evil))).toHaveLength(1);
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
  await until(() => view.params("payload").length === 2);
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
  expect(first.params("payload")).toHaveLength(1);
  click(first.all(".etv-row")[1]);
  await until(() => second.all('.etv-row[aria-selected="true"]').length === 1);
  first.close();
  second.close();
  widget.dispose();
  expect(first.el.childNodes).toHaveLength(0);
  expect(widget.model.listeners()).toBe(0);
});
