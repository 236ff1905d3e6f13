// @vitest-environment happy-dom
// The tensor pane: what it asks the kernel for, and what it shows when that fails.
import { expect, test } from "vitest";
import { click, openReady, until } from "../dev/view";

test("quick moves through rows ask the kernel once, known rows not again", async () => {
  const view = await openReady({ unfound: true });
  const rows = view.all(".etv-row");
  for (const row of rows.slice(0, 4)) click(row);
  const tensors = () => view.params("tensor").length;
  await until(() => tensors() === 1);
  await until(() => view.all(".etv-histogram").length === 2);
  click(rows[0]);
  await until(() => tensors() === 2);
  click(rows[3]);
  await new Promise((resolve) => setTimeout(resolve, 120));
  expect(tensors()).toBe(2);
});

test("a failed tensor keeps the rest of the row, and Retry asks again", async () => {
  const view = await openReady({ failing: ["tensor"] });
  click(view.all(".etv-row")[0]);
  await until(() => view.all(".etv-failure").length === 1);
  expect(view.texts(".etv-section-title")).toContain("Metrics");
  view.model.options.failing = [];
  click(view.one(".etv-failure .etv-button"));
  await until(() => view.all(".etv-histogram").length === 2);
});

test("a row's severity is judged by the row's own limits, as in the table", async () => {
  const view = await openReady();
  const head = view.all("[role=columnheader]").find((one) => one.textContent?.startsWith("introduced severity"));
  const at = head?.getAttribute("aria-colindex");
  const seen = new Set<string | null>();
  for (const row of view.all(".etv-row").slice(0, 12)) {
    click(row);
    await until(() => row.getAttribute("aria-selected") === "true");
    const step = row.querySelector(`[role=gridcell][aria-colindex="${at}"]`)?.getAttribute("data-step") ?? null;
    const line = view.all(".etv-figures tr").find((one) => one.textContent?.startsWith("severity"));
    expect(line?.querySelectorAll("td")[1]?.getAttribute("data-step") ?? null).toBe(step);
    seen.add(step);
  }
  expect(seen.size).toBeGreaterThan(1);
});
