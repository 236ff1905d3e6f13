// Light or dark where the page does not say: hosts that set no color-scheme still paint a background.
import { useLayoutEffect } from "preact/hooks";

const SLOTS = 3;

function channels(color: string): number[] | null {
  const numbers = color.match(/[\d.]+/g)?.map(Number) ?? [];
  const opaque = numbers.length === SLOTS || (numbers.length > SLOTS && numbers[SLOTS] > 0.5);
  return opaque && color.startsWith("rgb") ? numbers.slice(0, SLOTS) : null;
}

export function isDark(color: string): boolean | null {
  const rgb = channels(color);
  return rgb && 0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2] < 128;
}

function parentOf(element: Element): Element | null {
  const root = element.getRootNode();
  return element.parentElement ?? (root instanceof ShadowRoot ? root.host : null);
}

/** The scheme that fits the background around `element`; null if the page chose one itself. */
function schemeFor(element: HTMLElement): "light" | "dark" | null {
  if (getComputedStyle(element).colorScheme !== "normal") return null;
  for (let at: Element | null = element; at; at = parentOf(at)) {
    const dark = isDark(getComputedStyle(at).backgroundColor);
    if (dark !== null) return dark ? "dark" : "light";
  }
  return null;
}

/** Gives an element the color-scheme that fits the background it stands on. */
export function useScheme(ref: { readonly current: HTMLElement | null }): void {
  useLayoutEffect(() => {
    const element = ref.current;
    const scheme = element && schemeFor(element);
    if (scheme) element.style.colorScheme = scheme;
  }, []);
}
