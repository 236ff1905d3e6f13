// Traits: Python's changes show at once, the view's go back together and without an echo.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { SampleModel } from "../dev/model";
import { modelTraits } from "./traits";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("the values of the model are there from the start", () => {
  const model = new SampleModel();
  model.state.selected = 3;
  const { traits } = modelTraits(model);
  expect(traits.selected.value).toBe(3);
  expect(traits.sortBy.value).toBe("introduced_severity");
  vi.runAllTimers();
  expect(model.saves).toBe(0);
});

test("what Python sets shows, and is not written back", () => {
  const model = new SampleModel();
  const { traits } = modelTraits(model);
  model.setFromKernel("selected", 7);
  expect(traits.selected.value).toBe(7);
  vi.runAllTimers();
  expect(model.saves).toBe(0);
});

test("many changes of the view are one write", () => {
  const model = new SampleModel();
  const { traits } = modelTraits(model);
  for (const text of ["c", "co", "conv"]) traits.filter.value = text;
  traits.descending.value = false;
  expect(model.state.filter).toBe("");
  vi.runAllTimers();
  expect(model.state).toMatchObject({ filter: "conv", descending: false });
  expect(model.saves).toBe(1);
});

test("a change from Python wins over one that is still waiting", () => {
  const model = new SampleModel();
  const { traits } = modelTraits(model);
  traits.selected.value = 1;
  model.setFromKernel("selected", 2);
  vi.runAllTimers();
  expect(model.state.selected).toBe(2);
  expect(traits.selected.value).toBe(2);
});

test("closing writes what is waiting and leaves no listener", () => {
  const model = new SampleModel();
  const { traits, dispose } = modelTraits(model);
  traits.height.value = 900;
  dispose();
  expect(model.state.height).toBe(900);
  expect(model.listeners()).toBe(0);
});
