// Room for a panel comes from the largest neighbour, and the sizes still fill the window.
import { expect, test } from "vitest";
import { givenRoom } from "./width";

test("a narrow panel gets its room from the largest", () => {
  const sizes = givenRoom([0.2, 0.65, 0.15], 2, 0.4);
  expect(sizes.map((size) => Number(size.toFixed(3)))).toEqual([0.2, 0.4, 0.4]);
});

test("a wide panel stays as it is", () => {
  expect(givenRoom([0.2, 0.3, 0.5], 2, 0.4)).toEqual([0.2, 0.3, 0.5]);
});
