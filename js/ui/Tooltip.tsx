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

export function Tooltip({ root }: { root: RefObject<HTMLElement | null> }): JSX.Element | null {
  const [tip, setTip] = useState<Tip | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);

  useLayoutEffect(() => {
    const element = root.current;
    if (!element) return;
    const hide = (): void => {
      clearTimeout(timer.current);
      setTip(null);
    };
    const enter = (event: Event): void => {
      const target = (event.target as HTMLElement | null)?.closest<HTMLElement>("[data-tip]");
      hide();
      if (!target) return;
      timer.current = setTimeout(() => {
        if (target.isConnected) setTip(tipOf(element, target));
      }, DELAY_MS);
    };
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === "Escape") hide();
    };
    const listeners: [string, (event: never) => void][] = [
      ["pointerover", enter],
      ["focusin", enter],
      ["pointerdown", hide],
      ["pointerleave", hide],
      ["focusout", hide],
      ["wheel", hide],
      ["keydown", onKey],
    ];
    const options = { passive: true };
    for (const [name, on] of listeners) element.addEventListener(name, on as EventListener, options);
    return () => {
      clearTimeout(timer.current);
      for (const [name, on] of listeners) element.removeEventListener(name, on as EventListener);
    };
  }, []);

  if (!tip) return null;
  const place = tip.above ? { bottom: `${tip.top}px` } : { top: `${tip.top}px` };
  return (
    <div class="etv-tip" role="tooltip" style={{ left: `${tip.left}px`, ...place }}>
      {tip.text}
    </div>
  );
}
