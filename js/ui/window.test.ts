// Which rows are drawn, and how far a list scrolls to show one.
import { expect, test } from "vitest";
import { drawnPositions, scrollToShow, windowOf } from "./window";

test("the rows in view are always inside the window", () => {
  for (let top = 0; top < 2_600; top += 7) {
    const { start, end } = windowOf(top, 200, 26, 100);
    const first = Math.floor(top / 26);
    const last = Math.min(99, Math.floor((top + 199) / 26));
    expect(start).toBeLessThanOrEqual(Math.min(first, 99));
    if (first < 100) expect(end).toBeGreaterThan(last);
    expect(end - start).toBeLessThan(32);
  }
});

test("a list that became shorter still shows its last rows", () => {
  const { start, end } = windowOf(26_000, 200, 26, 12);
  expect(end).toBe(12);
  expect(start).toBe(0);
});

test("nothing to show is an empty window", () => {
  expect(windowOf(0, 200, 26, 0)).toEqual({ start: 0, end: 0 });
});

test("a row in view does not scroll, a near one scrolls just enough, a far one is centred", () => {
  expect(scrollToShow(5, 0, 260, 26)).toBe(0);
  expect(scrollToShow(10, 0, 260, 26)).toBe(26);
  expect(scrollToShow(3, 104, 260, 26)).toBe(78);
  expect(scrollToShow(100, 0, 260, 26)).toBe(2600 - 117);
  expect(scrollToShow(0, 5000, 260, 26)).toBe(0);
});

test("the row with the keyboard focus is drawn even when it is far away", () => {
  expect(drawnPositions({ start: 3, end: 6 }, 4, 100)).toEqual([3, 4, 5]);
  expect(drawnPositions({ start: 3, end: 6 }, 0, 100)).toEqual([0, 3, 4, 5]);
  expect(drawnPositions({ start: 3, end: 6 }, 99, 100)).toEqual([3, 4, 5, 99]);
  expect(drawnPositions({ start: 0, end: 0 }, 0, 0)).toEqual([]);
});

test("a list that is not bounded yet does not draw everything", () => {
  const { start, end } = windowOf(0, 50_000 * 26, 26, 50_000);
  expect(end - start).toBeLessThan(400);
});
