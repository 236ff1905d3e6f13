// Where in the tensor: a slice of the error, the reference or the runtime as a picture. A cell stands
// for a block of elements and shows the one that is furthest from zero: a single bad element stays visible.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { formatMetric } from "../state/format";
import { type ErrorMap, cellIndex } from "../state/maps";
import { ABOVE, ERROR, type Rgb, extent, gradient, paintSigned } from "./colors";
import { type Cell, PixelGrid } from "./PixelGrid";

interface Props {
  map: ErrorMap;
  of: string;
  log: boolean;
  stale: boolean;
}

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

function valueText(value: number): string {
  return Number.isFinite(value) ? formatMetric(value, 4) : "non-finite";
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
  return (
    <div class="etv-scale" role="img" aria-label={`Scale: ${signed ? `-${size} to ` : "0 to "}${size}`}>
      <span>{signed ? `-${size}` : "0"}</span>
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

export function MapChart({ map, of, log, stale }: Props): JSX.Element {
  const { values, height, width, low, high, block } = map;
  const most = extent(low, high);
  const color = of === "error" ? ERROR : ABOVE;
  const name = of === "error" ? "|error|" : of;
  const pixels = useMemo(() => paintSigned(values, most, log, color), [values, most, log, color]);
  const nonfinite = useMemo(() => values.some((value) => !Number.isFinite(value)), [values]);
  const worst = useMemo(() => furthest(map), [map]);
  const read = ({ down, across }: Cell): JSX.Element => (
    <>
      <span>{cellIndex(map, down, across)}</span>
      <span>
        {name} {valueText(values[down * width + across])}
      </span>
    </>
  );
  const blocks = block.some((size) => size > 1);
  const idle = worst && (
    <>
      <span>furthest from 0: {cellIndex(map, worst.down, worst.across)}</span>
      <span>{valueText(values[worst.down * width + worst.across])}</span>
    </>
  );
  const signed = low < 0;
  return (
    <>
      <PixelGrid
        label={`Map of the ${of}`}
        height={height}
        width={width}
        ratio={Math.min(HIGHEST, Math.max(LOWEST, height / width))}
        pixels={pixels}
        read={read}
        idle={idle ?? <span>every element is 0</span>}
        marked={of === "error" ? worst : null}
        stale={stale}
        legend={<Legend signed={signed} most={most} log={log} color={color} nonfinite={nonfinite} />}
      />
      {blocks && (
        <p class="etv-note-inline">
          A cell stands for {block.join(" × ")} elements and shows the one furthest from 0: none is hidden.
        </p>
      )}
    </>
  );
}
