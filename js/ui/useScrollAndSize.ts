// Follows the scrolling and the size of an element.
import { useLayoutEffect } from "preact/hooks";

export function useScrollAndSize(
  element: () => HTMLElement | null,
  changed: () => void,
  resized: () => void,
): void {
  useLayoutEffect(() => {
    const target = element();
    if (!target) return;
    const observer = new ResizeObserver(() => {
      changed();
      resized();
    });
    observer.observe(target);
    target.addEventListener("scroll", changed, { passive: true });
    changed();
    return () => {
      observer.disconnect();
      target.removeEventListener("scroll", changed);
    };
  }, [changed]);
}
