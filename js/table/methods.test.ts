// @vitest-environment happy-dom
// A program of several methods: the one that is chosen is shown, with a selection of its own.
import { expect, test } from "vitest";
import { openReady, press, until } from "../dev/view";

function choose(select: HTMLElement, value: string): void {
  (select as HTMLSelectElement).value = value;
  select.dispatchEvent(new Event("change", { bubbles: true }));
}

test("the method that is chosen is shown in every pane; what was pinned and filtered is not", async () => {
  const view = await openReady({ layers: 6, methods: ["decode", "prefill"] });
  const select = view.one(".etv-method-select") as HTMLSelectElement;
  expect([...select.options].map(({ value }) => value)).toEqual(["decode", "prefill"]);
  expect(select.value).toBe("decode");
  const rows = view.all(".etv-row").length;
  press(view.one(".etv-row"), "p");
  await until(() => view.all(".etv-row[data-pinned]").length === 1);
  choose(select, "prefill");
  await until(() => view.params("method").length === 1);
  expect(view.params("method")).toEqual([{ method: "prefill" }]);
  await until(() => view.all(".etv-row[data-pinned]").length === 0 && view.all(".etv-row").length < rows);
  await until(() => (view.one(".etv-method-select") as HTMLSelectElement).value === "prefill");
  await until(() => view.all('.etv-row[aria-selected="true"]').length === 1);
});

test("why a method can't be shown is said", async () => {
  const view = await openReady({ methods: ["decode", "prefill"], failing: ["method"] });
  choose(view.one(".etv-method-select"), "prefill");
  await until(() => view.texts(".etv-method-failed").some((text) => text.includes("Copy it from the device")));
  expect((view.one(".etv-method-select") as HTMLSelectElement).value).toBe("decode");
});

test("one method needs no choice", async () => {
  const view = await openReady({ methods: ["forward"] });
  expect(view.all(".etv-method-select")).toEqual([]);
});
