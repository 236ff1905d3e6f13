// The bar on top of a side panel: its title, pin, the other side, close.
import type { ComponentChildren, JSX } from "preact";
import type { Place } from "../state/panels";

export interface PanelActions {
  pin(pinned: boolean): void;
  otherSide(): void;
  close(): void;
}

interface ButtonProps {
  label: string;
  pressed?: boolean;
  onClick: () => void;
  children: ComponentChildren;
}

function Button({ label, pressed, onClick, children }: ButtonProps): JSX.Element {
  return (
    <button type="button" title={label} aria-label={label} aria-pressed={pressed} onClick={onClick}>
      <svg viewBox="0 0 16 16" aria-hidden="true">
        {children}
      </svg>
    </button>
  );
}

interface Props {
  place: Place;
  actions: PanelActions;
  /** False where no notebook is known that the panel could follow. */
  follows: boolean;
}

export function PanelBar({ place, actions, follows }: Props): JSX.Element {
  const { title, area, pinned } = place;
  const other = area === "left" ? "right" : "left";
  return (
    <>
      <span class="etviz-panel-title" title={title}>
        {title}
      </span>
      {follows && (
        <Button
          label={pinned ? "Pinned: stays for every notebook" : "Pin: stay when another notebook is in front"}
          pressed={pinned}
          onClick={() => actions.pin(!pinned)}
        >
          <path d="M5.5 2.5h5M6.2 2.5v4.2L4.2 9.3h7.6L9.8 6.7V2.5M8 9.3v4.5" />
        </Button>
      )}
      <Button label={`Move to the ${other} side`} onClick={actions.otherSide}>
        <path d={area === "left" ? "M2.5 3h11v10h-11zM10 3v10M4.5 8H8M6.5 6L8.3 8L6.5 10" : "M2.5 3h11v10h-11zM6 3v10M11.5 8H8M9.5 6L7.7 8L9.5 10"} />
      </Button>
      <Button label="Close: back to the cell" onClick={actions.close}>
        <path d="M4 4l8 8M12 4l-8 8" />
      </Button>
    </>
  );
}
