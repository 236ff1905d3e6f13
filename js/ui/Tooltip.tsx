// One tooltip for the whole view: it shows the `data-tip` text of whatever is pointed at, focused, or held by a finger,
// and describes it to those who don't see it. Elements with `data-tip-clipped` show it only while their text is cut off.
import type { JSX, RefObject } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

interface Tip {
  text: string;
  left: number;
  top: number;
  above: boolean;
}

const DELAY_MS = 350;
const WIDTH = 320;
const ROOM_BELOW = 90;

/** How far down the view is seen: what scrolls around it may cut it off. */
function seenTo(root: HTMLElement, bottom: number): number {
  let seen = Math.min(bottom, root.ownerDocument.defaultView?.innerHeight ?? bottom);
  for (let around = root.parentElement; around; around = around.parentElement) {
    if (getComputedStyle(around).overflowY !== "visible") {
      seen = Math.min(seen, around.getBoundingClientRect().bottom);
    }
  }
  return seen;
}

/** Whether some of its text is out of sight, be it a name's beginning. */
function isCut(target: HTMLElement): boolean {
  const parts = [target, ...target.querySelectorAll(".etv-place")];
  return parts.some((part) => part.scrollWidth > part.clientWidth);
}

function tipOf(root: HTMLElement, target: HTMLElement): Tip | null {
  const text = target.dataset.tip;
  if (!text) return null;
  if ("tipClipped" in target.dataset && !isCut(target)) return null;
  const frame = root.getBoundingClientRect();
  const box = target.getBoundingClientRect();
  const above = seenTo(root, frame.bottom) - box.bottom < ROOM_BELOW;
  const left = Math.max(4, Math.min(box.left - frame.left, frame.width - WIDTH - 4));
  return { text, left, top: above ? frame.bottom - box.top + 4 : box.bottom - frame.top + 4, above };
}

function isSamePlace(a: PointerEvent, b: PointerEvent): boolean {
  return a.clientX === b.clientX && a.clientY === b.clientY;
}

/** Calls `enter` with what is pointed at or focused, `hide` when that is over. */
function listen(
  root: HTMLElement,
  enter: (target: HTMLElement | null) => void,
  hide: () => void,
): () => void {
  let pressed: HTMLElement | null = null;
  let pressedAt: PointerEvent | null = null;
  const targetOf = (event: Event): HTMLElement | null =>
    (event.target as HTMLElement | null)?.closest<HTMLElement>("[data-tip]") ?? null;
  const onEnter = (event: Event): void => {
    const target = targetOf(event);
    if ((event as PointerEvent).pointerType === "touch" || (target && target === pressed)) return;
    // What a press brought below a pointer that rests was not pointed at.
    if (pressedAt && event.type === "pointerover" && isSamePlace(event as PointerEvent, pressedAt)) return;
    pressed = null;
    enter(target);
  };
  const onPress = (event: Event): void => {
    hide();
    pressed = targetOf(event);
    pressedAt = event as PointerEvent;
    // A finger that stays is what a pointer that rests is elsewhere.
    if ((event as PointerEvent).pointerType === "touch") enter(pressed);
  };
  const onKey = (event: Event): void => {
    if ((event as KeyboardEvent).key === "Escape") hide();
  };
  const listeners: [string, (event: Event) => void][] = [
    ["pointerover", onEnter],
    ["focusin", onEnter],
    ["pointerdown", onPress],
    ["pointerleave", hide],
    ["focusout", hide],
    ["wheel", hide],
    ["keydown", onKey],
  ];
  for (const [name, on] of listeners) root.addEventListener(name, on, { passive: true });
  return () => {
    for (const [name, on] of listeners) root.removeEventListener(name, on);
  };
}

/** The tooltip, and the text that describes what is pointed at, which is there at once. */
function useTip(root: RefObject<HTMLElement | null>, id: string): [Tip | null, string] {
  const [tip, setTip] = useState<Tip | null>(null);
  const [said, setSaid] = useState("");
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useLayoutEffect(() => {
    const element = root.current;
    if (!element) return;
    let described: HTMLElement | null = null;
    const hide = (): void => {
      clearTimeout(timer.current);
      described?.removeAttribute("aria-describedby");
      described = null;
      setTip(null);
    };
    const enter = (target: HTMLElement | null): void => {
      hide();
      if (!target) return;
      described = target;
      target.setAttribute("aria-describedby", id);
      setSaid(target.dataset.tip ?? "");
      timer.current = setTimeout(() => {
        if (target.isConnected) setTip(tipOf(element, target));
      }, DELAY_MS);
    };
    const unlisten = listen(element, enter, hide);
    return () => {
      clearTimeout(timer.current);
      unlisten();
    };
  }, []);
  return [tip, said];
}

export function Tooltip({ root }: { root: RefObject<HTMLElement | null> }): JSX.Element {
  const id = useId();
  const [tip, said] = useTip(root, id);
  const place = tip?.above ? { bottom: `${tip.top}px` } : { top: `${tip?.top ?? 0}px` };
  return (
    <>
      <span class="etv-hidden" id={id} role={said ? "tooltip" : undefined}>
        {said}
      </span>
      {tip && (
        <div class="etv-tip" aria-hidden="true" style={{ left: `${tip.left}px`, ...place }}>
          {tip.text}
        </div>
      )}
    </>
  );
}
