// What a map shows: which axes run down and across, and where it cuts the others.
import type { JSX } from "preact";
import type { ErrorMap, MapChoice } from "../state/maps";

interface Props {
  map: ErrorMap;
  choice: MapChoice;
  /** Off in a report, which holds one slice. */
  disabled: boolean;
  onChange: (choice: MapChoice) => void;
}

const SIDES = ["down", "across"] as const;

function AxisChoice({
  map,
  side,
  disabled,
  set,
}: Omit<Props, "choice" | "onChange"> & {
  side: number;
  set: (axis: number) => void;
}): JSX.Element {
  return (
    <label class="etv-axis">
      {SIDES[side]}
      <select
        class="etv-select"
        aria-label={`Axis that runs ${SIDES[side]}`}
        disabled={disabled}
        value={String(map.axes[side])}
        onChange={(event) => set(Number(event.currentTarget.value))}
      >
        {map.shape.map((size, axis) => (
          <option key={axis} value={axis}>
            axis {axis} ({size})
          </option>
        ))}
      </select>
    </label>
  );
}

/** The axes after one of them was chosen; the two change places when they would be the same. */
export function withAxis(axes: readonly number[], side: number, axis: number): number[] {
  const next = [...axes];
  if (next[1 - side] === axis) next[1 - side] = next[side];
  next[side] = axis;
  return next;
}

export function MapControls({ map, choice, disabled, onChange }: Props): JSX.Element | null {
  const others = map.shape
    .map((size, axis) => ({ size, axis }))
    .filter(({ axis }) => !map.axes.includes(axis));
  const sliders = others.filter(({ size }) => size > 1);
  if (map.axes.length < 2 || (map.shape.length < 3 && sliders.length === 0)) return null;
  const index = choice.index ?? map.index;
  return (
    <div class="etv-map-controls">
      {[0, 1].map((side) => (
        <AxisChoice
          key={side}
          map={map}
          side={side}
          disabled={disabled}
          set={(axis) => onChange({ ...choice, axes: withAxis(map.axes, side, axis), index: null })}
        />
      ))}
      {sliders.map(({ axis, size }) => (
        <label key={axis} class="etv-slider">
          <span>
            axis {axis}: <b>{index[axis]}</b> of {size}
          </span>
          <input
            type="range"
            min={0}
            max={size - 1}
            disabled={disabled}
            value={index[axis]}
            aria-label={`Index along axis ${axis}`}
            onInput={(event) => {
              const at = Number(event.currentTarget.value);
              onChange({ ...choice, axes: map.axes, index: index.map((old, k) => (k === axis ? at : old)) });
            }}
          />
        </label>
      ))}
    </div>
  );
}
