// @vitest-environment happy-dom
// The tokens of a language model: what is seen of each, and how its call is opened.
import { expect, test } from "vitest";
import { type TestView, click, openView, press, until } from "../dev/view";
import { visibleText } from "../data/tokens";

const tokens = (): { methods: string[]; tokens: { rows: number } } => ({ methods: [""], tokens: { rows: 12 } });

async function openTokens(): Promise<TestView> {
  const view = await openView(tokens());
  await until(() => view.all(".etv-token").length > 0);
  return view;
}

function chosen(view: TestView): number {
  return Number(view.one('.etv-token[aria-selected="true"]').dataset.token);
}

test("nothing that a tokenizer writes is hidden, turned round or markup", async () => {
  expect(visibleText("a\n\u202eb\u0007\ud800")).toBe("a⏎<U+202E>b<U+0007><U+D800>");
  const view = await openTokens();
  expect(view.texts(".etv-token bdi")).toEqual(["The", " house", "⏎", " is", "<U+202E>", " old", "<b>", " x", "The"]);
  expect(view.all("b").filter((found) => found.closest(".etv-token"))).toEqual([]);
});

test("a flip is marked, hollow where noise explains it, and said to those who don't see it", async () => {
  const view = await openTokens();
  const flips = view.all(".etv-token").map((token) => token.querySelector<HTMLElement>(".etv-flip")?.dataset.flip ?? "");
  expect(flips).toEqual(["", "", "", "explained", "", "fault", "", "", ""]);
  const label = view.one('[data-token="5"]').getAttribute("aria-label") ?? "";
  expect(label).toContain("flip: reference “ old”, runtime “ barn”; noise does not explain it");
  expect(label).toContain("margin 5.50, shifted by -6.00, noise 2.00e-3");
  expect(view.one('[data-token="5"]').style.getPropertyValue("--etv-heat")).toBe("1.000");
  expect(view.one('[data-token="0"]').style.getPropertyValue("--etv-heat")).toBe("0.000");
});

test("the token to look at first is chosen; a click opens the call of another one", async () => {
  const view = await openTokens();
  expect(chosen(view)).toBe(5);
  expect(view.texts(".etv-empty-title")).toContain("No call is open");
  expect(view.all(".etv-row")).toEqual([]);
  click(view.one('[data-token="3"]'));
  await until(() => view.all(".etv-row").length > 0);
  expect(view.params("method")).toEqual([{ method: "0:3" }]);
  expect(chosen(view)).toBe(3);
});

test("brackets and arrows step; the call where one rests is opened", async () => {
  const view = await openTokens();
  const list = view.one(".etv-token-list");
  press(list, "[");
  press(list, "[");
  press(list, "ArrowRight");
  expect(chosen(view)).toBe(5);
  await until(() => chosen(view) === 4);
  expect(list.getAttribute("aria-activedescendant")).toBe("etv-token-4");
  await until(() => view.params("method").length === 1);
  expect(view.params("method")).toEqual([{ method: "0:4" }]);
  press(list, "Home");
  await until(() => chosen(view) === 0);
});

test("the second prompt has its own tokens", async () => {
  const view = await openTokens();
  const select = view.one('[aria-label="Prompt that is shown"]') as HTMLSelectElement;
  select.value = "1";
  select.dispatchEvent(new Event("change", { bubbles: true }));
  await until(() => view.all(".etv-token").length === 3);
  expect(view.params("method")).toEqual([{ method: "1:0" }]);
});

test("the map reads the severity of a layer in a call, and Enter opens the call", async () => {
  const view = await openTokens();
  const map = view.one(".etv-step-map-plot");
  press(map, "ArrowRight");
  await until(() => view.one(".etv-step-map-head").textContent?.includes("layers.0, call 5") ?? false);
  press(map, "ArrowDown");
  await until(() => view.one(".etv-step-map-head").textContent?.includes("layers.1, call 5: 40.0") ?? false);
  press(map, "Enter");
  await until(() => view.params("method").length === 1);
  expect(view.params("method")).toEqual([{ method: "0:5" }]);
});
