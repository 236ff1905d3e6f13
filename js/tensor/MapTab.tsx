// The tab with where in the tensor the error is: a slice of the error, the reference or the runtime as a picture.
// A cell stands for a block of elements and shows the one that is furthest from zero: a single bad element stays visible.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import type { MapOf } from "../kernel/contract";
import { formatMetric } from "../data/format";
import { type ErrorMap, FIRST_MAP, type MapChoice, cellIndex, mapQuestion } from "../data/tensor";
import { useApp } from "../ui/context";
import { type Choice, Switches } from "../ui/Switches";
import { Answered, useAnswer } from "./answer";
import { AxisSelect } from "./AxisSelect";
import { ABOVE, ERROR, type Rgb, extent, gradient, paintSigned } from "./colors";
import { type Cell, PixelGrid } from "./PixelGrid";

const LOWEST = 0.12;
const HIGHEST = 1.1;

function furthest({ values, width }: ErrorMap): Cell | null {
  let at = -1;
  let most = 0;
  for (let k = 0; k < values.length; k++) {
    const size = Number.isFinite(values[k]) ? Math.abs(values[k]) : Infinity;
    if (size > most) [at, most] = [k, size];
  }
  return at < 0 ? null : { down: Math.floor(at / width), across: at % width };
}

interface LegendProps {
  signed: boolean;
  most: number;
  log: boolean;
  color: Rgb;
  nonfinite: boolean;
}

function Legend({ signed, most, log, color, nonfinite }: LegendProps): JSX.Element {
  const size = formatMetric(most);
  const least = signed ? `-${size}` : "0";
  return (
    <div class="etv-scale" role="img" aria-label={`Scale: ${least} to ${size}`}>
      <span>{least}</span>
      <span class="etv-scale-bar" style={{ background: gradient(signed, color) }} />
      <span>{size}</span>
      {log && <span>log</span>}
      {nonfinite && (
        <span class="etv-scale-nonfinite">
          <span aria-hidden="true" /> non-finite
        </span>
      )}
    </div>
  );
}

interface MapChartProps {
  map: ErrorMap;
  of: MapOf;
  log: boolean;
  stale: boolean;
}

function MapChart({ map, of, log, stale }: MapChartProps): JSX.Element {
  const { values, height, width, low, high, block } = map;
  const most = extent(low, high);
  const color = of === "error" ? ERROR : ABOVE;
  const name = of === "error" ? "|error|" : of;
  const pixels = useMemo(() => paintSigned(values, most, log, color), [values, most, log, color]);
  const nonfinite = useMemo(() => values.some((value) => !Number.isFinite(value)), [values]);
  const worst = useMemo(() => furthest(map), [map]);
  const valueText = ({ down, across }: Cell): string => {
    const value = values[down * width + across];
    return Number.isFinite(value) ? formatMetric(value, 4) : "non-finite";
  };
  const read = (cell: Cell): JSX.Element => (
    <>
      <span>{cellIndex(map, cell.down, cell.across)}</span>
      <span>
        {name} {valueText(cell)}
      </span>
    </>
  );
  const idle = worst ? (
    <>
      <span>furthest from 0: {cellIndex(map, worst.down, worst.across)}</span>
      <span>{valueText(worst)}</span>
    </>
  ) : (
    <span>every element is 0</span>
  );
  return (
    <>
      <PixelGrid
        label={`Map of the ${of}`}
        height={height}
        width={width}
        ratio={Math.min(HIGHEST, Math.max(LOWEST, height / width))}
        pixels={pixels}
        read={read}
        idle={idle}
        marked={of === "error" ? worst : null}
        stale={stale}
        legend={<Legend signed={low < 0} most={most} log={log} color={color} nonfinite={nonfinite} />}
      />
      {block.some((size) => size > 1) && (
        <p class="etv-note-inline">
          A cell stands for {block.join(" × ")} elements and shows the one furthest from 0: none is hidden.
        </p>
      )}
    </>
  );
}

/** The axes after one of them was chosen; the two change places when they would be the same. */
function withAxis(axes: readonly number[], side: number, axis: number): number[] {
  const next = [...axes];
  if (next[1 - side] === axis) next[1 - side] = next[side];
  next[side] = axis;
  return next;
}

interface ControlsProps {
  map: ErrorMap;
  choice: MapChoice;
  /** Off in a report, which holds one slice. */
  disabled: boolean;
  onChange: (choice: MapChoice) => void;
}

/** Which axes run down and across, and where the map cuts the others. */
function Controls({ map, choice, disabled, onChange }: ControlsProps): JSX.Element | null {
  const sliders = map.shape
    .map((size, axis) => ({ size, axis }))
    .filter(({ size, axis }) => size > 1 && !map.axes.includes(axis));
  if (map.axes.length < 2 || (map.shape.length < 3 && sliders.length === 0)) return null;
  const index = choice.index ?? map.index;
  return (
    <div class="etv-map-controls">
      {["down", "across"].map((text, side) => (
        <AxisSelect
          key={text}
          text={text}
          label={`Axis that runs ${text}`}
          shape={map.shape}
          axis={map.axes[side]}
          disabled={disabled}
          onChange={(axis) => onChange({ ...choice, axes: withAxis(map.axes, side, axis), index: null })}
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

const OF: Choice<MapOf>[] = [
  { name: "error", text: "error", tip: "runtime − reference" },
  { name: "reference", text: "reference", tip: "Values of the reference" },
  { name: "runtime", text: "runtime", tip: "Values at runtime" },
];
const SCALES = [
  { name: "linear", text: "linear", tip: "Linear colours" },
  { name: "log", text: "log", tip: "Logarithmic colours: four decades" },
];

/** The slice is chosen anew for each row. */
export function MapTab({ row }: { row: number }): JSX.Element {
  const { view, store } = useApp();
  const { mapOf, logMap } = view;
  const [slice, setSlice] = useState<MapChoice & { row: number }>({ ...FIRST_MAP, row });
  const { kernel } = store.source;
  const of = kernel ? mapOf.value : "error";
  const choice: MapChoice = slice.row === row ? { ...slice, of } : { ...FIRST_MAP, of };
  const answer = useAnswer(mapQuestion(row, choice));
  return (
    <>
      <div class="etv-chart-bar">
        <Switches
          label="Shown in the map"
          choices={OF.map((one) => ({ ...one, disabled: !kernel && one.name !== "error" }))}
          value={of}
          onChange={(name) => (mapOf.value = name)}
        />
        <span class="etv-spring" />
        <Switches
          label="Scale of the colours"
          choices={SCALES}
          value={logMap.value ? "log" : "linear"}
          onChange={(name) => (logMap.value = name === "log")}
        />
      </div>
      <Answered answer={answer}>
        {(map) => (
          <>
            {map.values.length === 0 ? (
              <p class="etv-none">The tensor has no elements.</p>
            ) : (
              <MapChart map={map} of={of} log={logMap.value} stale={answer.stale} />
            )}
            <Controls
              map={map}
              choice={choice}
              disabled={!kernel}
              onChange={(next) => setSlice({ ...next, row })}
            />
          </>
        )}
      </Answered>
    </>
  );
}
