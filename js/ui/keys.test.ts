// @vitest-environment happy-dom
// Keys stay in the view, chords are the host's.
import { afterEach, expect, test } from "vitest";
import { openReady, press } from "../dev/view";

const reached: string[] = [];
const listen = ({ key }: KeyboardEvent): void => void reached.push(key);

afterEach(() => {
  document.removeEventListener("keydown", listen);
  reached.length = 0;
});

test("no letter typed in the view reaches the host, chords do", async () => {
  const view = await openReady();
  document.addEventListener("keydown", listen);
  for (const place of [".etv-row", ".etv-node", ".etv-search input", ".etv-edge", ".etv-chip"]) {
    for (const key of ["m", "x", "d", "b", "M", "0", "Enter", "Escape", "ArrowDown", " "])
      press(view.one(place), key);
    press(view.one(place), "s", { ctrlKey: true });
    press(view.one(place), "f", { metaKey: true });
  }
  expect(reached).toEqual(Array(5).fill(["s", "f"]).flat());
});
