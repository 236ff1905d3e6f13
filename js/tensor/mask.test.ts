// @vitest-environment happy-dom
// From a bin of the histogram to the elements that are in it, and from a likely fault to where it is seen.
import { expect, test } from "vitest";
import { click, openReady, press, until } from "../dev/view";
import { cellsWithin, placeNamed } from "../data/tensor";

test("a bin of the error masks the map; everything is a press away", async () => {
  const view = await openReady();
  click(view.one('.etv-row[data-row="4"]'));
  await until(() => view.all(".etv-chart-tabs [role=tab]").length === 4);
  click(view.all(".etv-chart-tabs [role=tab]")[0]);
  await until(() => view.all('svg[aria-label="Histogram of the error"]').length === 1);
  const chart = view.one('svg[aria-label="Histogram of the error"]');
  press(chart, "ArrowRight");
  await until(() => view.all(".etv-range").length === 1);
  press(chart, "Enter");
  await until(() => view.one(".etv-mask").textContent?.includes("cells have an error from") ?? false);
  click(view.one(".etv-mask button"));
  await until(() => view.all(".etv-mask").length === 0);
});

test("an error is looked for by its size, a value by itself", () => {
  const values = Float64Array.from([0, 0.5, -2, 3, NaN]);
  expect([...cellsWithin({ values }, -1, 1, true)]).toEqual([1, 1, 0, 0, 0]);
  expect([...cellsWithin({ values }, -4, -1, true)]).toEqual([0, 0, 0, 1, 0]);
  expect([...cellsWithin({ values }, -4, 0.2, false)]).toEqual([1, 0, 1, 0, 0]);
});

test("the evidence of a channel names its slice", () => {
  expect(placeNamed("Index 4 of axis 1 (of 10) is ×0.25: this explains over 99.9 % of the squared error.")).toEqual({ axis: 1, index: 4 });
  expect(placeNamed("The runtime is 2 times the reference.")).toBeNull();
});

test("the slices along one more axis stand beside one another; a press shows one large", async () => {
  const view = await openReady();
  click(view.one('.etv-row[data-row="4"]'));
  await until(() => view.all(".etv-chart-tabs [role=tab]").length === 4);
  click(view.all(".etv-chart-tabs [role=tab]")[1]);
  await until(() => view.all(".etv-grid").length === 1);
  const down = view.all(".etv-axis select")[0] as HTMLSelectElement;
  down.value = "0";
  down.dispatchEvent(new Event("change", { bubbles: true }));
  await until(() => view.all(".etv-slider").length > 0);
  expect(view.all(".etv-facet")).toEqual([]);
  click(view.one(".etv-slider-line .etv-switch"));
  await until(() => view.all(".etv-facet canvas").length > 1);
  const facets = view.all(".etv-facet");
  expect(facets.filter((facet) => facet.getAttribute("aria-pressed") === "true")).toHaveLength(1);
  const other = facets.find((facet) => facet.getAttribute("aria-pressed") === "false");
  if (!other) throw new Error("all slices are shown");
  const before = view.params("error_map").length;
  click(other);
  await until(() => view.params("error_map").slice(before).some(({ size }) => size === 256));
});
