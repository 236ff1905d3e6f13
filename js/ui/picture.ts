// A picture on a canvas in the colours of the page, drawn anew when these change.
import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/** Resolves the colour of a custom property. */
export type Paint = (name: string) => string;

/** The font of letters of this size, in px. */
export function fontOf(size: number): string {
  return `${size}px system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif`;
}

/** The colours as the page has them now; `light-dark()` is resolved by an element, not by a canvas. */
export function paints(probe: HTMLElement, known = new Map<string, string>()): Paint {
  return (name) => {
    let color = known.get(name);
    if (color === undefined) {
      probe.style.color = `var(${name})`;
      known.set(name, (color = getComputedStyle(probe).color));
    }
    return color;
  };
}

type Draw = (context: CanvasRenderingContext2D, paint: Paint) => void;

/** For a canvas and an element whose colour can be set: drawn when its size or `what` it shows changes. */
export function usePicture(
  width: number,
  height: number,
  draw: Draw,
  what: unknown,
): [RefObject<HTMLCanvasElement | null>, RefObject<HTMLSpanElement | null>] {
  const canvas = useRef<HTMLCanvasElement>(null);
  const probe = useRef<HTMLSpanElement>(null);
  const due = useRef<(() => void) | null>(null);
  const colors = useRef(new Map<string, string>());
  const paint = (): void => {
    const context = canvas.current?.getContext("2d");
    if (!canvas.current || !probe.current || !context) return;
    const ratio = globalThis.devicePixelRatio || 1;
    canvas.current.width = Math.round(width * ratio);
    canvas.current.height = Math.round(height * ratio);
    context.scale(ratio, ratio);
    colors.current = new Map();
    draw(context, paints(probe.current, colors.current));
  };
  const recolor = (): void => {
    const now = probe.current && paints(probe.current);
    if (now && [...colors.current].some(([name, color]) => now(name) !== color)) paint();
  };
  useLayoutEffect(() => {
    // In the second frame, so that the first one, with the rest, is there sooner; once for several renderings.
    due.current = paint;
    requestAnimationFrame(() =>
      requestAnimationFrame(() => {
        due.current?.();
        due.current = null;
      }),
    );
  }, [width, height, what]);
  useLayoutEffect(() => {
    // Another theme is another colour of the text: hosts say it by an attribute of the page, or the system does.
    const dark = globalThis.matchMedia?.("(prefers-color-scheme: dark)");
    const observer = new MutationObserver(recolor);
    observer.observe(document.documentElement, { attributes: true });
    observer.observe(document.body, { attributes: true });
    dark?.addEventListener("change", recolor);
    return () => {
      observer.disconnect();
      dark?.removeEventListener("change", recolor);
    };
  }, [width, height, what]);
  return [canvas, probe];
}
