// One tooltip for the whole view: it shows the `data-tip` text of whatever is pointed at or focused.
// Elements with `data-tip-clipped` show it only while their text is cut off.
import type { JSX, RefObject } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

interface Tip {
  text: string;
  left: number;
  top: number;
  above: boolean;
}

const DELAY_MS = 350;
const WIDTH = 320;
const ROOM_BELOW = 90;

function tipOf(root: HTMLElement, target: HTMLElement): Tip | null {
  const text = target.dataset.tip;
  if (!text) return null;
  if ("tipClipped" in target.dataset && target.scrollWidth <= target.clientWidth) return null;
  const frame = root.getBoundingClientRect();
  const box = target.getBoundingClientRect();
  const above = frame.bottom - box.bottom < ROOM_BELOW;
  const left = Math.max(4, Math.min(box.left - frame.left, frame.width - WIDTH - 4));
  return { text, left, top: above ? frame.bottom - box.top + 4 : box.bottom - frame.top + 4, above };
}

/** Calls `enter` with what is pointed at or focused, `hide` when that is over. */
function listen(
  root: HTMLElement,
  enter: (target: HTMLElement | null) => void,
  hide: () => void,
): () => void {
  let pressed: HTMLElement | null = null;
  const targetOf = (event: Event): HTMLElement | null =>
    (event.target as HTMLElement | null)?.closest<HTMLElement>("[data-tip]") ?? null;
  const onEnter = (event: Event): void => {
    const target = targetOf(event);
    if (target && target === pressed) return;
    pressed = null;
    enter(target);
  };
  const onPress = (event: Event): void => {
    pressed = targetOf(event);
    hide();
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

function useTip(root: RefObject<HTMLElement | null>): Tip | null {
  const [tip, setTip] = useState<Tip | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useLayoutEffect(() => {
    const element = root.current;
    if (!element) return;
    const hide = (): void => {
      clearTimeout(timer.current);
      setTip(null);
    };
    const enter = (target: HTMLElement | null): void => {
      hide();
      if (!target) return;
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
  return tip;
}

export function Tooltip({ root }: { root: RefObject<HTMLElement | null> }): JSX.Element | null {
  const tip = useTip(root);
  if (!tip) return null;
  const place = tip.above ? { bottom: `${tip.top}px` } : { top: `${tip.top}px` };
  return (
    <div class="etv-tip" role="tooltip" style={{ left: `${tip.left}px`, ...place }}>
      {tip.text}
    </div>
  );
}
