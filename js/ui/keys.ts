// Keys: arrows as steps, moves in a list, and the focus that follows them.
import { useLayoutEffect, useState } from "preact/hooks";
import type { WindowedList } from "./window";

const ARROWS: Record<string, { across: number; down: number }> = {
  ArrowUp: { across: 0, down: -1 },
  ArrowDown: { across: 0, down: 1 },
  ArrowLeft: { across: -1, down: 0 },
  ArrowRight: { across: 1, down: 0 },
};

/** The step of an arrow key; null for other keys. */
export function arrowOf({ key }: KeyboardEvent): { across: number; down: number } | null {
  return ARROWS[key] ?? null;
}

/** The position in a list that a key moves to from `at`; null for keys that don't move. */
export function movedTo(key: string, at: number, last: number, page: number): number | null {
  switch (key) {
    case "ArrowDown":
      return Math.min(last, at + 1);
    case "ArrowUp":
      return Math.max(0, at - 1);
    case "PageDown":
      return Math.min(last, at + page);
    case "PageUp":
      return Math.max(0, at - page);
    case "Home":
      return 0;
    case "End":
      return last;
    default:
      return null;
  }
}

function isChord({ ctrlKey, metaKey, altKey }: KeyboardEvent): boolean {
  return ctrlKey || metaKey || altKey;
}

/** True for what takes letters itself. */
export function isTyping(target: EventTarget | null): boolean {
  const { tagName = "", type = "" } = (target ?? {}) as Partial<HTMLInputElement>;
  if (tagName === "INPUT") return !["checkbox", "range", "button"].includes(type);
  return tagName === "TEXTAREA" || tagName === "SELECT";
}

/**
 * For the root of a view: no key leaves it but chords, which are the host's (Ctrl+S saves). A notebook in command
 * mode would take a letter that reaches it as a command, and delete the cell.
 */
export function keepKeys(event: KeyboardEvent): void {
  if (!isChord(event)) event.stopPropagation();
}

/** Gives the focus to the row that Tab reaches, or to the view of an element where there is no row. */
export function focusRow(within: Element | null): void {
  const view = within?.closest<HTMLElement>(".etviz");
  const row = view?.querySelector<HTMLElement>('.etv-table [tabindex="0"]');
  (row ?? view)?.focus({ preventScroll: true });
}

/** A listener for keys without modifiers: those that `act` makes use of go no further. */
export function keysOf(act: (event: KeyboardEvent) => boolean): (event: KeyboardEvent) => void {
  return (event) => {
    if (isChord(event) || !act(event)) return;
    event.preventDefault();
    event.stopPropagation();
  };
}

/**
 * Where the focused part of a view is taken away (its row is filtered out, its pane changes), the view keeps the focus,
 * and a click in the view brings it there: else the next letter would be the notebook's.
 */
export function useKeptFocus(root: { readonly current: HTMLElement | null }): void {
  useLayoutEffect(() => {
    const element = root.current;
    if (!element) return;
    let last: Element | null = null;
    const onFocus = ({ target }: FocusEvent): void => void (last = target as Element);
    const onLeave = ({ relatedTarget }: FocusEvent): void => {
      if (relatedTarget && !element.contains(relatedTarget as Node)) last = null;
    };
    const active = (): Element | null => (element.getRootNode() as Document | ShadowRoot).activeElement;
    const observer = new MutationObserver(() => {
      if (!last || last.isConnected) return;
      last = null;
      const held = active();
      if (!held || held === element.ownerDocument.body) element.focus({ preventScroll: true });
    });
    const onClick = ({ target }: MouseEvent): void => {
      if (element.contains(active())) return;
      const part = (target as Element).closest<HTMLElement>("[tabindex]");
      (part && element.contains(part) ? part : element).focus({ preventScroll: true });
    };
    element.addEventListener("click", onClick);
    observer.observe(element, { childList: true, subtree: true });
    element.addEventListener("focusin", onFocus);
    element.addEventListener("focusout", onLeave);
    return () => {
      observer.disconnect();
      element.removeEventListener("click", onClick);
      element.removeEventListener("focusin", onFocus);
      element.removeEventListener("focusout", onLeave);
    };
  }, []);
}

/** Gives the focus to the tab stop of a list once that is drawn. */
export function useRefocus(list: WindowedList): (options: FocusOptions) => void {
  // A state, so that the list is drawn even where nothing else of it changes: a wish that was kept would take the focus later.
  const [wanted, setWanted] = useState<FocusOptions | null>(null);
  useLayoutEffect(() => {
    if (wanted) list.element()?.querySelector<HTMLElement>('[tabindex="0"]')?.focus(wanted);
  }, [wanted]);
  return (options) => setWanted({ ...options });
}
