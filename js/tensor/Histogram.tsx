// Histograms over shared bins, drawn over each other; pointing at a bin (or the arrow keys) reads it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { formatCount, formatMetric } from "../state/format";
import { useWidth } from "../ui/useWidth";
import { Axes } from "./Axes";
import { type Frame, type Scales, binAt, largest, outline, scalesOf } from "./bars";

export interface Series {
  name: string;
  counts: Float64Array;
  tone: "reference" | "runtime" | "error" | "float";
  /** An area; otherwise a line. */
  filled: boolean;
}

interface Props {
  label: string;
  edges: Float64Array;
  series: Series[];
  log: boolean;
  height?: number;
  /** The range that the values can have: beyond it they saturate. */
  limits?: readonly [number, number] | undefined;
}

interface LimitsProps {
  limits: readonly [number, number];
  scales: Scales;
  frame: Frame;
}

/** The ends of the range as lines, what is beyond as a shade. */
function Limits({ limits, scales, frame }: LimitsProps): JSX.Element {
  const left = frame.left;
  const right = frame.width - frame.right;
  const base = frame.height - frame.bottom;
  const at = limits.map((value) => Math.min(right, Math.max(left, scales.x(value))));
  const shades = [
    [left, at[0]],
    [at[1], right],
  ];
  return (
    <g class="etv-limits" aria-hidden="true">
      {shades.map(([from, to], side) => (
        <rect key={side} x={from} width={Math.max(0, to - from)} y={frame.top} height={base - frame.top} />
      ))}
      {at
        .filter((x) => x > left && x < right)
        .map((x) => (
          <line key={x} x1={x} x2={x} y1={frame.top} y2={base} />
        ))}
    </g>
  );
}

function Reading({
  edges,
  series,
  bin,
}: {
  edges: Float64Array;
  series: Series[];
  bin: number;
}): JSX.Element {
  const last = bin === edges.length - 2;
  return (
    <p class="etv-reading" aria-live="polite">
      {series.map(({ name, counts, tone, filled }) => (
        <span key={name} class={`etv-tone-${tone}`}>
          <span class="etv-key" data-tone={tone} data-filled={filled} aria-hidden="true" />
          {name} {bin >= 0 && formatCount(counts[bin])}
        </span>
      ))}
      {bin >= 0 && (
        <span class="etv-range" data-side={bin * 2 < edges.length ? "right" : "left"}>
          [{formatMetric(edges[bin], 4)}, {formatMetric(edges[bin + 1], 4)}
          {last ? "]" : ")"}
        </span>
      )}
    </p>
  );
}

function Bin({
  edges,
  bin,
  scales,
  frame,
}: {
  edges: Float64Array;
  bin: number;
  scales: Scales;
  frame: Frame;
}): JSX.Element {
  const left = scales.x(edges[bin]);
  return (
    <rect
      class="etv-bin"
      x={left}
      width={Math.max(1, scales.x(edges[bin + 1]) - left)}
      y={frame.top}
      height={frame.height - frame.bottom - frame.top}
    />
  );
}

interface BinReader {
  bin: number;
  onPointerMove: (event: PointerEvent) => void;
  onPointerLeave: () => void;
  onKeyDown: (event: KeyboardEvent) => void;
  onBlur: () => void;
}

/** The bin that is pointed at, or moved to with the arrow keys; -1 for none. */
function useBin(edges: Float64Array, scales: Scales): BinReader {
  const [held, setBin] = useState(-1);
  const last = edges.length - 2;
  const bin = Math.min(held, last);
  return {
    bin,
    onPointerMove(event) {
      const box = (event.currentTarget as Element).getBoundingClientRect();
      setBin(binAt(edges, scales.value(event.clientX - box.left)));
    },
    onPointerLeave: () => setBin(-1),
    onKeyDown(event) {
      const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (by === 0) return;
      event.preventDefault();
      setBin(Math.min(last, Math.max(0, bin + by)));
    },
    onBlur: () => setBin(-1),
  };
}

export function Histogram({ label, edges, series, log, height = 132, limits }: Props): JSX.Element {
  const [ref, width] = useWidth<HTMLDivElement>(340);
  const most = largest(series.map((one) => one.counts));
  const frame: Frame = { width, height, left: 38, right: 12, top: 8, bottom: 20 };
  const scales = scalesOf(edges, most, log, frame);
  const { bin, ...handlers } = useBin(edges, scales);
  if (most === 0) return <p class="etv-none">No finite values to draw.</p>;
  return (
    <div class="etv-histogram" ref={ref}>
      <svg width={width} height={height} role="img" aria-label={label} tabIndex={0} {...handlers}>
        <Axes xTicks={scales.xTicks} yTicks={scales.yTicks} frame={frame} />
        {limits && <Limits limits={limits} scales={scales} frame={frame} />}
        {bin >= 0 && <Bin edges={edges} bin={bin} scales={scales} frame={frame} />}
        {series.map(({ name, counts, tone, filled }) => (
          <path
            key={name}
            class={`etv-bars etv-bars-${tone}`}
            data-filled={filled}
            d={outline(edges, counts, scales, filled)}
          />
        ))}
      </svg>
      <Reading edges={edges} series={series} bin={bin} />
    </div>
  );
}
