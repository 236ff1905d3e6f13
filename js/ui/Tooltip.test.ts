// @vitest-environment happy-dom
// Tooltips describe what they belong to, for those who don't see them.
import { expect, test } from "vitest";
import { openReady, until } from "../dev/view";

test("what is focused is described at once, and no more when the focus is gone", async () => {
  const view = await openReady();
  const head = view.one('[data-column="severity"]');
  head.dispatchEvent(new FocusEvent("focusin", { bubbles: true }));
  const id = head.getAttribute("aria-describedby");
  expect(id).toBeTruthy();
  await until(() => document.getElementById(id as string)?.textContent?.includes("How far the runtime value") ?? false);
  head.dispatchEvent(new FocusEvent("focusout", { bubbles: true }));
  expect(head.hasAttribute("aria-describedby")).toBe(false);
});
