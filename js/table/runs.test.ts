// @vitest-environment happy-dom
// Several executions of one program: of each value the worst is shown, one run can be looked at, or all of them.
import { expect, test } from "vitest";
import { samplePayload } from "../dev/samplePayload";
import { click, openReady, until } from "../dev/view";
import { filterRows } from "../data/filter";
import { formatMetric } from "../data/format";
import { decodePayload } from "../data/payload";
import { profileOf } from "../data/profile";
import { runTerms, withRun } from "../data/runs";
import { readQuery } from "../data/filter";

const sample = { layers: 2, uncompared: 0, runs: 3 };
const payload = decodePayload(samplePayload(sample));
const each = payload.rows / 3;

test("of each value the row with the largest error of its own is kept", () => {
  const kept = [...filterRows(payload, "")];
  expect(kept).toHaveLength(each);
  const own = (row: number): number => payload.number("introduced_severity", row);
  kept.forEach((row) => {
    const same = [0, 1, 2].map((run) => (row % each) + run * each);
    expect(own(row)).toBe(Math.max(...same.map(own)));
  });
  expect(new Set(kept.map((row) => row % each)).size).toBe(each);
});

test("a run, or all of them, by the query; a limit is held against every run before one is chosen", () => {
  expect([...filterRows(payload, "run:1")]).toEqual(Array.from({ length: each }, (_, k) => each + k));
  expect(filterRows(payload, "run:..")).toHaveLength(3 * each);
  expect(filterRows(payload, "severity>20").length).toBeLessThan(filterRows(payload, "severity>20 run:..").length + 1);
  expect(runTerms(readQuery(payload, "op:add run:1 severity>2").terms)).toBe("run:1");
  expect(withRun("op:add run:1", "run:2")).toBe("op:add run:2");
  expect(withRun("op:add run:1", "")).toBe("op:add");
});

test("the profile of the worst has no borders between runs", () => {
  const folded = profileOf(payload, filterRows(payload, ""), true);
  expect([folded.rows.length, folded.runs]).toEqual([each, []]);
  expect(profileOf(payload, filterRows(payload, "run:.."), false).runs).toEqual([each, 2 * each]);
});

test("the choice is a term of the search, and the other way round", async () => {
  const view = await openReady(sample);
  const select = view.one(".etv-run-select") as HTMLSelectElement;
  expect([...select.options].map(({ text }) => text)).toEqual(["worst of 3 runs", "all 3 runs", "run 0", "run 1", "run 2"]);
  expect(view.one(".etv-count").textContent).toContain(`${each} of ${3 * each} rows`);
  select.value = "run:2";
  select.dispatchEvent(new Event("change", { bubbles: true }));
  await until(() => view.all(".etv-row").every((row) => Number(row.dataset.row) >= 2 * each));
  expect((view.one(".etv-search input") as HTMLInputElement).value).toBe("run:2");
  expect(view.one(".etv-row .etv-first").textContent).toContain("@2");
});

test("each execution is a cell with its worst error; a press shows it alone, another all again", async () => {
  const view = await openReady(sample);
  const own = (row: number): number => payload.number("introduced_severity", row) || 0;
  const cells = view.all(".etv-run");
  cells.forEach((cell, run) => {
    const rows = Array.from({ length: each }, (_, k) => run * each + k).filter((row) => !payload.unused[row] && !payload.mismatch[row]);
    const mismatch = Array.from({ length: each }, (_, k) => payload.mismatch[run * each + k]).includes(1);
    const worst = Math.max(...rows.map(own));
    expect(cell.getAttribute("aria-label")).toContain(mismatch ? `run ${run}: worst introduced severity mismatch` : `run ${run}: worst introduced severity ${formatMetric(worst)}`);
  });
  expect(cells).toHaveLength(3);
  click(cells[1]);
  await until(() => (view.one(".etv-search input") as HTMLInputElement).value === "run:1");
  expect(view.all(".etv-run").map((cell) => cell.getAttribute("aria-pressed"))).toEqual(["false", "true", "false"]);
  click(view.all(".etv-run")[1]);
  await until(() => (view.one(".etv-search input") as HTMLInputElement).value === "");
});

test("what is selected stays the same value in the execution that is chosen", async () => {
  const view = await openReady(sample);
  click(view.all(".etv-row")[2]);
  await until(() => view.model.state.selected === Number(view.all(".etv-row")[2].dataset.row));
  const value = (): number => Number(view.model.state.selected) % each;
  const before = value();
  for (const run of [1, 2, 0]) {
    click(view.all(".etv-run")[run]);
    await until(() => Math.floor(Number(view.model.state.selected) / each) === run);
    expect(value()).toBe(before);
    expect(view.all('.etv-row[aria-selected="true"]')).toHaveLength(1);
  }
  click(view.all(".etv-run")[0]);
  await until(() => (view.one(".etv-search input") as HTMLInputElement).value === "");
  expect(value()).toBe(before);
  expect(view.all('.etv-row[aria-selected="true"]')).toHaveLength(1);
});
