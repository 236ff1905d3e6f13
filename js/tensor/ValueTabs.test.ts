// @vitest-environment happy-dom
// The tabs of the tensor pane: asked for when opened, remembered, with their failures.
import { expect, test } from "vitest";
import { type TestView, click, openReady, press, until } from "../dev/view";
import { chartOf } from "./ValueTabs";

function tab(view: TestView, text: string): HTMLElement {
  const found = view.all(".etv-chart-tabs .etv-tab").find((one) => one.textContent === text);
  if (!found) throw new Error(`no tab ${text}`);
  return found;
}

async function openTab(view: TestView, text: string): Promise<void> {
  click(view.all(".etv-row")[0]);
  await until(() => view.all(".etv-chart-tabs").length === 1);
  click(tab(view, text));
}

test("nothing is asked before its tab is opened, and the tab stays for the next row", async () => {
  const view = await openReady();
  click(view.all(".etv-row")[0]);
  await until(() => view.all(".etv-histogram").length === 2);
  expect(view.model.sent.some(({ method }) => ["error_map", "channels", "scatter"].includes(method))).toBe(
    false,
  );
  click(tab(view, "Scatter"));
  await until(() => view.all(".etv-grid").length === 1);
  click(view.all(".etv-row")[1]);
  await until(() => view.params("scatter").length === 2);
  expect(tab(view, "Scatter").getAttribute("aria-selected")).toBe("true");
});

test("the map: what it shows, axes and slices are asked for; the arrow keys read elements", async () => {
  const view = await openReady();
  await openTab(view, "Error map");
  await until(() => view.all(".etv-grid").length === 1);
  const row = Number(view.all(".etv-row")[0].dataset.row);
  expect(view.params("error_map")[0]).toEqual({ row, of: "error", axes: null, index: null, size: 256 });
  press(view.one(".etv-grid"), "ArrowRight");
  await until(
    () => view.one(".etv-grid-reading").textContent?.startsWith("[0, 40, 231–233]|error| 0.031") ?? false,
  );
  press(view.one(".etv-grid"), "ArrowDown");
  await until(() => view.one(".etv-grid-reading").textContent?.startsWith("[0, 41, 231–233]") ?? false);
  const down = view.all(".etv-axis select")[0] as HTMLSelectElement;
  down.value = "2";
  down.dispatchEvent(new Event("change", { bubbles: true }));
  await until(() => view.params("error_map").length === 2);
  expect(view.params("error_map")[1]).toMatchObject({ axes: [2, 1], index: null });
  click(view.all(".etv-chart-bar .etv-switch")[1]);
  // The runtime's map of the same slice gives the scale.
  await until(() => view.params("error_map").length === 4);
  expect(view.params("error_map").slice(2)).toMatchObject([
    { of: "reference", axes: [2, 1] },
    { of: "runtime", axes: [2, 1] },
  ]);
  const scale = (): string => view.one(".etv-scale").getAttribute("aria-label") ?? "";
  await until(() => scale().startsWith("Scale: -"));
  const shared = scale();
  click(view.all(".etv-chart-bar .etv-switch")[2]);
  await until(() => view.one(".etv-grid").getAttribute("aria-label") === "Map of the runtime");
  expect(scale()).toBe(shared);
});

test("links: an element to its cell, a bar to its slice", async () => {
  const view = await openReady();
  await until(() => view.all(".etv-figures .etv-link").length > 0);
  const link = view.all(".etv-figures .etv-link")[1];
  const index = JSON.parse(link.textContent ?? "") as number[];
  click(link);
  await until(() => view.all(".etv-grid-mark").length === 1);
  expect(view.params("error_map").at(-1)).toMatchObject({ index, axes: null });
  await openTab(view, "Channels");
  await until(() => view.all(".etv-channel-bars").length === 1);
  const chart = view.one(".etv-histogram svg");
  press(chart, "ArrowRight");
  await until(() => view.all(".etv-bin").length === 1);
  press(chart, "Enter");
  await until(() => view.params("error_map").some(({ axes }) => String(axes) === "0,1"));
  expect(view.params("error_map").at(-1)).toMatchObject({ axes: [0, 1], index: [0, 0, 500] });
});

test("channels: the worst is named, another axis is asked for", async () => {
  const view = await openReady();
  await openTab(view, "Channels");
  await until(() => view.one(".etv-reading").textContent?.includes("worst: channel 500") ?? false);
  const axis = view.one(".etv-axis select") as HTMLSelectElement;
  expect(axis.value).toBe("2");
  axis.value = "1";
  axis.dispatchEvent(new Event("change", { bubbles: true }));
  await until(() => view.one(".etv-reading").textContent?.includes("worst: channel 40") ?? false);
});

test("a map that can't come says why, and Retry asks again", async () => {
  const view = await openReady({ failing: ["error_map"] });
  await openTab(view, "Error map");
  await until(() => view.all(".etv-chart .etv-failure").length === 1);
  view.model.options.failing = [];
  click(view.one(".etv-chart .etv-failure .etv-button"));
  await until(() => view.all(".etv-grid").length === 1);
});

test("the fingerprint opens its tab; quantization: three histograms, the range, steps against ideal rounding", async () => {
  const view = await openReady({ layers: 6 });
  view.model.setFromKernel("selected", 41);
  await until(() => view.one('[role="tab"][aria-selected="true"]').textContent === "Channels");
  await openTab(view, "Histogram");
  await until(() => view.all(".etv-bars-float").length === 1);
  expect(view.all(".etv-limits line")).toHaveLength(2);
  expect(view.one(".etv-chart").textContent).toContain("0.412 steps RMSE (ideal rounding: 0.289)");
  expect(view.texts(".etv-fingerprint-name")).toEqual(["single bad channel", "constant offset"]);
  expect(view.one(".etv-score").getAttribute("aria-label")).toBe("score 83.0 %");
});

test("a report opens what it has of the likely fault, else the histogram", () => {
  const facts = { fingerprints: [{ name: "single bad channel", score: 1, evidence: "" }] };
  expect(chartOf(facts, {}, 3)).toBe("channels");
  expect(chartOf(facts, { holds: (method, row) => method === "channels" && row === 3 }, 3)).toBe("channels");
  expect(chartOf(facts, { holds: (method, row) => method === "channels" && row === 3 }, 4)).toBe("histogram");
});
