// The tab with where in the tensor the error is: a slice of the error, the reference or the runtime as a picture; the two
// have one scale, so that what differs looks different. A cell stands for a block of elements and shows the one that is
// furthest from zero: a single bad element stays visible. What has no place on the scale is drawn in its cell.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import type { MapOf } from "../kernel/contract";
import { formatCount, formatMetric } from "../data/format";
import { type ErrorMap, FIRST_MAP, type MapChoice, cellIndex, cellOf, cellsWithin, mapQuestion } from "../data/tensor";
import type { MapScale } from "../state/view";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { type Choice, Switches } from "../ui/Switches";
import { Answered, useAnswer } from "./answer";
import { AxisSelect } from "./AxisSelect";
import { ABOVE, ERROR, type Rgb, extent, gradient, paintSigned, spread } from "./colors";
import { Facets } from "./Facets";
import { type Cell, type Mark, PixelGrid } from "./PixelGrid";

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

/** What is drawn in a cell that is not finite, and what it is called. */
const KINDS: readonly { glyph: string; name: string }[] = [
  { glyph: "", name: "non-finite" },
  { glyph: "I", name: "+Inf" },
  { glyph: "−I", name: "−Inf" },
  { glyph: "X", name: "NaN" },
];

/** The cells that the scale does not show: X for NaN, I and −I for infinities, + and − beyond its ends. */
function marksOf({ values, kinds, width }: ErrorMap, most: number): Mark[] {
  const marks: Mark[] = [];
  values.forEach((value, k) => {
    const finite = Number.isFinite(value);
    const glyph = finite ? (value > most ? "+" : value < -most ? "−" : "") : (KINDS[kinds?.[k] ?? 3]?.glyph ?? "X");
    if (glyph) marks.push({ down: Math.floor(k / width), across: k % width, glyph });
  });
  return marks;
}

interface LegendProps {
  signed: boolean;
  most: number;
  scale: MapScale;
  color: Rgb;
  nonfinite: boolean;
}

const SCALE_NOTES = { linear: "", trimmed: "3σ; + and − beyond", log: "log" };

function Legend({ signed, most, scale, color, nonfinite }: LegendProps): JSX.Element {
  const size = formatMetric(most);
  const least = signed ? `-${size}` : "0";
  return (
    <div class="etv-scale" role="img" aria-label={`Scale: ${least} to ${size}`}>
      <span>{least}</span>
      <span class="etv-scale-bar" style={{ background: gradient(signed, color) }} />
      <span>{size}</span>
      <span>{SCALE_NOTES[scale]}</span>
      {nonfinite && (
        <span class="etv-scale-nonfinite">
          <span aria-hidden="true" /> X NaN, I Inf
        </span>
      )}
    </div>
  );
}

/** The first element of a cell. */
function elementAt({ axes, block, index }: ErrorMap, down: number, across: number): number[] {
  const cells = axes.length > 1 ? [down, across] : [across];
  return index.map((at, axis) => {
    const side = axes.indexOf(axis);
    return side < 0 ? at : cells[side] * (block[axes.length > 1 ? side : block.length - 1] || 1);
  });
}

interface MapChartProps {
  map: ErrorMap;
  /** The map that has the same scale: the reference's of the runtime, and the other way round. */
  other: ErrorMap | null;
  of: MapOf;
  scale: MapScale;
  stale: boolean;
  element: readonly number[] | null;
  onSelect: (index: readonly number[]) => void;
}

function MapChart({ map, other, of, scale, stale, element, onSelect }: MapChartProps): JSX.Element {
  const { values, height, width, block } = map;
  const low = Math.min(map.low, other?.low ?? Infinity);
  const high = Math.max(map.high, other?.high ?? -Infinity);
  const whole = extent(low, high);
  const trimmed = useMemo(() => Math.max(spread(values), other ? spread(other.values) : 0), [values, other]);
  const most = scale === "trimmed" ? Math.min(whole, trimmed || whole) : whole;
  const log = scale === "log";
  const color = of === "error" ? ERROR : ABOVE;
  const name = of === "error" ? "|error|" : of;
  const { mask } = useApp().view;
  const span = mask.value;
  const masked = span?.row === map.row && (span.of === "error") === (of === "error") ? span : null;
  const shown = useMemo(() => masked && cellsWithin(map, masked.low, masked.high, of === "error"), [map, masked, of]);
  const pixels = useMemo(() => paintSigned(values, most, log, color, shown), [values, most, log, color, shown]);
  const nonfinite = useMemo(() => values.some((value) => !Number.isFinite(value)), [values]);
  const marks = useMemo(() => marksOf(map, most < whole ? most : Infinity), [map, most, whole]);
  const worst = useMemo(() => furthest(map), [map]);
  const held = element && cellOf(map, element);
  const valueText = ({ down, across }: Cell): string => {
    const value = values[down * width + across];
    return Number.isFinite(value) ? formatMetric(value, 4) : KINDS[map.kinds?.[down * width + across] ?? 0].name;
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
      {masked && shown && (
        <p class="etv-mask" role="status">
          {formatCount(shown.reduce((sum, flag) => sum + flag, 0))} of {formatCount(shown.length)} cells have{" "}
          {of === "error" ? "an error" : "a value"} from {formatMetric(masked.low)} to {formatMetric(masked.high)}
          <Button class="etv-quiet" onClick={() => (mask.value = null)}>
            Show all
          </Button>
        </p>
      )}
      <PixelGrid
        label={`Map of the ${of}`}
        height={height}
        width={width}
        ratio={Math.min(HIGHEST, Math.max(LOWEST, height / width))}
        pixels={pixels}
        read={read}
        idle={idle}
        marked={held ?? (of === "error" ? worst : null)}
        marks={marks}
        onSelect={({ down, across }) => onSelect(elementAt(map, down, across))}
        stale={stale}
        legend={<Legend signed={low < 0} most={most} scale={scale} color={color} nonfinite={nonfinite} />}
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
  const { facetAxis } = useApp().view;
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
        <div key={axis} class="etv-slider-line">
          <label class="etv-slider">
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
          {!disabled && (
            <button
              type="button"
              class="etv-switch etv-alone"
              aria-pressed={facetAxis.value === axis}
              data-tip="The slices along this axis beside one another"
              onClick={() => (facetAxis.value = facetAxis.value === axis ? null : axis)}
            >
              facets
            </button>
          )}
        </div>
      ))}
    </div>
  );
}

const OF: Choice<MapOf>[] = [
  { name: "error", text: "error", tip: "runtime − reference" },
  { name: "reference", text: "reference", tip: "Values of the reference" },
  { name: "runtime", text: "runtime", tip: "Values at runtime" },
];
const SCALES: Choice<MapScale>[] = [
  { name: "linear", text: "linear", tip: "Linear colours" },
  { name: "trimmed", text: "3σ", tip: "Linear up to three standard deviations; what is beyond is marked" },
  { name: "log", text: "log", tip: "Logarithmic colours: four decades" },
];

const SIBLINGS: Record<MapOf, MapOf> = { error: "error", reference: "runtime", runtime: "reference" };

/** The slice is chosen anew for each row. A report holds one, which it was asked for with nothing chosen. */
export function MapTab({ row }: { row: number }): JSX.Element {
  const { view, store } = useApp();
  const { facetAxis, mapOf, mapScale, slice, element } = view;
  const { kernel } = store.source;
  const of = kernel ? mapOf.value : "error";
  const chosen = kernel && slice.value?.row === row ? slice.value : FIRST_MAP;
  const choice: MapChoice = { of, axes: chosen.axes, index: chosen.index };
  const answer = useAnswer(mapQuestion(row, choice));
  const sibling = useAnswer(mapQuestion(row, { ...choice, of: SIBLINGS[of] }));
  const scale = mapScale.value;
  const faceted = ({ shape, axes }: ErrorMap): boolean => {
    const axis = facetAxis.value;
    return kernel && axis !== null && axis < shape.length && shape[axis] > 1 && !axes.includes(axis);
  };
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
          value={scale}
          onChange={(name) => (mapScale.value = name)}
        />
      </div>
      <Answered answer={answer}>
        {(map) => (
          <>
            {map.values.length === 0 ? (
              <p class="etv-none">The tensor has no elements.</p>
            ) : (
              <MapChart
                map={map}
                other={sibling.stale || of === "error" ? null : sibling.facts}
                of={of}
                scale={scale}
                stale={answer.stale}
                element={element.value?.row === row ? element.value.index : null}
                onSelect={(index) => (element.value = { row, index })}
              />
            )}
            <Controls
              map={map}
              choice={choice}
              disabled={!kernel}
              onChange={({ axes, index }) => (slice.value = { row, axes, index })}
            />
            {faceted(map) && (
              <Facets
                map={map}
                axis={facetAxis.value ?? 0}
                of={of}
                scale={scale}
                onSelect={({ axes, index }) => (slice.value = { row, axes, index })}
              />
            )}
          </>
        )}
      </Answered>
    </>
  );
}
