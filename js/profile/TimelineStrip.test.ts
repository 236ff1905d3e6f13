// @vitest-environment happy-dom
// The timeline is asked for when it is looked at, reads every event by keys, and selects its row.
import { expect, test } from "vitest";
import { eventAt, formatTime, moved, timelineQuestion } from "../data/timeline";
import { sampleTimeline } from "../dev/sampleTimeline";
import { type TestView, click, openReady, press, until } from "../dev/view";

const timeline = timelineQuestion(0).decode(sampleTimeline(0));

async function opened(distorted = false): Promise<TestView> {
  const view = await openReady({ timed: 3, distorted });
  expect(view.params("timeline")).toEqual([]);
  press(view.one(".etv-row"), "m");
  await until(() => view.all(".etv-time .etv-profile-plot").length === 1);
  return view;
}

test("nothing is asked before it is looked at, then the run of the median", async () => {
  const view = await opened();
  expect(view.params("timeline")).toEqual([{ run: 1 }]);
  expect(view.texts(".etv-timed-run option")).toEqual(["run 1 of 3", "run 2 of 3 (median)", "run 3 of 3"]);
  const select = view.one(".etv-timed-run") as HTMLSelectElement;
  select.value = "2";
  select.dispatchEvent(new Event("change", { bubbles: true }));
  await until(() => view.params("timeline").length === 2);
  expect(view.params("timeline")[1]).toEqual({ run: 2 });
});

test("keys go from event to event, Enter selects the row of a call", async () => {
  const view = await opened();
  const plot = view.one(".etv-profile-plot");
  const reading = (): string => view.one(".etv-profile-reading").textContent ?? "";
  press(view.one(".etv-row"), "[");
  press(plot, "ArrowRight");
  await until(() => /^#/.test(reading()));
  press(plot, "ArrowUp");
  await until(() => reading().startsWith("Method::execute"));
  press(plot, "ArrowDown");
  await until(() => reading().startsWith("#"));
  for (let k = 0; k < 6; k++) press(plot, "ArrowLeft");
  await until(() => reading().includes("at 0"));
  press(plot, "Enter");
  await until(() => view.one('.etv-row[aria-selected="true"]').dataset.row === "0");
  press(plot, "ArrowDown");
  await until(() => reading().startsWith("Transpose #1"));
  expect(reading()).toContain("not known");
  press(plot, "ArrowRight");
  await until(() => reading().startsWith("Fully Connected #1"));
  expect(reading()).toContain("→ linear (likely)");
  press(plot, "+");
  await until(() => view.texts(".etv-whole").length === 1);
  press(plot, "Escape");
  await until(() => view.all(".etv-whole").length === 0);
});

test("what distorts the times is said", async () => {
  const view = await opened(true);
  expect(view.one(".etv-time-note").dataset.level).toBe("warn");
  expect(view.one(".etv-time-note").dataset.tip).toContain("About these times.");
  click(view.all(".etv-time .etv-switch")[0]);
  await until(() => view.all(".etv-time").length === 0);
});

test("an event is found by level and time, or near it", () => {
  const names = (level: number, time: number, slack = 0): string => {
    const event = eventAt(timeline, level, time, slack);
    return event < 0 ? "" : timeline.name(event);
  };
  expect(names(1, 2.5)).toBe("call 2");
  expect(names(1, 2.95)).toBe("");
  expect(names(1, 2.96, 0.05)).toBe("call 3");
  expect(names(2, 2.37, 0.08)).toBe("Fully Connected #1");
  expect(names(7, 1)).toBe("");
  const last = eventAt(timeline, 1, 5.5, 0);
  expect(moved(timeline, last, 1, 0)).toBe(last);
  expect(timeline.name(moved(timeline, last, 0, -1))).toBe("Method::execute");
});

test("times have the unit that fits", () => {
  expect([0, 4e-5, 0.0125, 3.2, 1250].map(formatTime)).toEqual(["0", "40 ns", "12.5 µs", "3.2 ms", "1.25 s"]);
});
