// Gives an element the color-scheme that fits the background it stands on.
import { useLayoutEffect } from "preact/hooks";
import { schemeFor } from "./scheme";

export function useScheme(ref: { readonly current: HTMLElement | null }): void {
  useLayoutEffect(() => {
    const element = ref.current;
    const scheme = element && schemeFor(element);
    if (scheme) element.style.colorScheme = scheme;
  }, []);
}
