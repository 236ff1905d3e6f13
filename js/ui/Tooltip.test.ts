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

test("what a press brought below a pointer that rests has no tooltip until the pointer moves", async () => {
  const view = await openReady();
  const point = (type: string, target: HTMLElement, clientX: number): boolean =>
    target.dispatchEvent(new PointerEvent(type, { bubbles: true, pointerType: "mouse", clientX, clientY: 9 }));
  const [pressed, brought] = view.all("[data-column][data-tip]");
  point("pointerdown", pressed, 40);
  point("pointerover", brought, 40);
  expect(brought.hasAttribute("aria-describedby")).toBe(false);
  point("pointerover", brought, 41);
  expect(brought.hasAttribute("aria-describedby")).toBe(true);
});
