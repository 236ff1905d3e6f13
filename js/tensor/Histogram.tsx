// Histograms over shared bins, drawn over each other; pointing at a bin (or the arrow keys) reads it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { formatCount, formatMetric } from "../state/format";
import { useWidth } from "../ui/useWidth";
import { type Frame, type Scales, binAt, largest, outline, scalesOf } from "./bars";

export interface Series {
  name: string;
  counts: Float64Array;
  tone: "reference" | "runtime" | "error";
  /** An area; otherwise a line. */
  filled: boolean;
}

interface Props {
  label: string;
  edges: Float64Array;
  series: Series[];
  log: boolean;
  height?: number;
}

function Axes({ scales, frame }: { scales: Scales; frame: Frame }): JSX.Element {
  const base = frame.height - frame.bottom;
  return (
    <g class="etv-axes" aria-hidden="true">
      {scales.yTicks.map((tick) => (
        <g key={tick.text}>
          <line class="etv-rule" x1={frame.left} x2={frame.width - frame.right} y1={tick.at} y2={tick.at} />
          <text x={frame.left - 5} y={tick.at} dy="0.32em" text-anchor="end">
            {tick.text}
          </text>
        </g>
      ))}
      <line class="etv-base" x1={frame.left} x2={frame.width - frame.right} y1={base} y2={base} />
      {scales.xTicks.map((tick) => (
        <g key={tick.text}>
          <line class="etv-base" x1={tick.at} x2={tick.at} y1={base} y2={base + 4} />
          <text x={tick.at} y={base + 14} text-anchor={tick.at > frame.width - 24 ? "end" : "middle"}>
            {tick.text}
          </text>
        </g>
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

export function Histogram({ label, edges, series, log, height = 132 }: Props): JSX.Element {
  const [ref, width] = useWidth<HTMLDivElement>(340);
  const most = largest(series.map((one) => one.counts));
  const frame: Frame = { width, height, left: 38, right: 12, top: 8, bottom: 20 };
  const scales = scalesOf(edges, most, log, frame);
  const { bin, ...handlers } = useBin(edges, scales);
  if (most === 0) return <p class="etv-none">No finite values to draw.</p>;
  return (
    <div class="etv-histogram" ref={ref}>
      <svg width={width} height={height} role="img" aria-label={label} tabIndex={0} {...handlers}>
        <Axes scales={scales} frame={frame} />
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
