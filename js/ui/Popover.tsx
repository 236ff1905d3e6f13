// A button with a panel under it; the panel closes on Escape and on a press outside.
import type { ComponentChildren, JSX, RefObject } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Props {
  label: string;
  button: ComponentChildren;
  class?: string;
  tip?: string;
  active?: boolean;
  align?: "left" | "right";
  children: ComponentChildren;
}

/** Calls `close` on a press outside of `frame` while `open`. */
function usePressOutside(frame: RefObject<HTMLElement | null>, open: boolean, close: () => void): void {
  useEffect(() => {
    const page = frame.current?.ownerDocument;
    if (!open || !page) return;
    const pressed = (event: Event): void => {
      if (frame.current && !event.composedPath().includes(frame.current)) close();
    };
    page.addEventListener("pointerdown", pressed);
    return () => page.removeEventListener("pointerdown", pressed);
  }, [open]);
}

export function Popover(props: Props): JSX.Element {
  const [open, setOpen] = useState(false);
  const frame = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);
  usePressOutside(frame, open, () => setOpen(false));
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation();
    setOpen(false);
    opener.current?.focus();
  };
  return (
    <div class={`etv-popover ${props.class ?? ""}`} ref={frame} onKeyDown={onKeyDown}>
      <button
        type="button"
        ref={opener}
        class="etv-button"
        aria-expanded={open}
        aria-haspopup="dialog"
        data-active={props.active}
        data-tip={open ? undefined : props.tip}
        onClick={() => setOpen(!open)}
      >
        {props.button}
      </button>
      {open && (
        <div class="etv-panel" role="dialog" aria-label={props.label} data-align={props.align ?? "left"}>
          {props.children}
        </div>
      )}
    </div>
  );
}
