// @vitest-environment happy-dom
// Keys stay in the view, chords are the host's.
import { afterEach, expect, test } from "vitest";
import { openReady, press, until } from "../dev/view";

const reached: string[] = [];
const listen = ({ key }: KeyboardEvent): void => void reached.push(key);

afterEach(() => {
  document.removeEventListener("keydown", listen);
  reached.length = 0;
});

test("no letter typed in the view reaches the host, chords do", async () => {
  const view = await openReady();
  document.addEventListener("keydown", listen);
  for (const place of [".etv-row", ".etv-node", ".etv-search input", ".etv-edge", ".etv-profile-plot"]) {
    for (const key of ["m", "x", "d", "b", "M", "0", "Enter", "Escape", "ArrowDown", " "])
      press(view.one(place), key);
    press(view.one(place), "s", { ctrlKey: true });
    press(view.one(place), "f", { metaKey: true });
  }
  expect(reached).toEqual(Array(5).fill(["s", "f"]).flat());
});

test("where a focused row is filtered out, the view keeps the focus and the letters", async () => {
  const view = await openReady();
  document.addEventListener("keydown", listen);
  view.one('.etv-row[tabindex="0"]').focus();
  view.model.setFromKernel("filter", "no such operator");
  await until(() => view.all(".etv-row").length === 0);
  await until(() => document.activeElement === view.one(".etviz"));
  press(document.activeElement as HTMLElement, "x");
  await until(() => view.all(".etv-row").length > 0);
  expect(reached).toEqual([]);
});
