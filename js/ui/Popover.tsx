// A button with a panel under it; the panel closes on Escape, on a press outside, and on focus leaving.
import type { ComponentChildren, JSX } from "preact";
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

export function Popover(props: Props): JSX.Element {
  const [open, setOpen] = useState(false);
  const frame = useRef<HTMLDivElement>(null);
  const opener = useRef<HTMLButtonElement>(null);

  useEffect(() => {
    const page = frame.current?.ownerDocument;
    if (!open || !page) return;
    const outside = (event: Event): void => {
      if (frame.current && !event.composedPath().includes(frame.current)) setOpen(false);
    };
    page.addEventListener("pointerdown", outside);
    return () => page.removeEventListener("pointerdown", outside);
  }, [open]);

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
