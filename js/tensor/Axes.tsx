// Ticks and rules of a chart.
import type { JSX } from "preact";
import type { Frame, Tick } from "./bars";

interface Props {
  xTicks: readonly Tick[];
  yTicks: readonly Tick[];
  frame: Frame;
}

const NEAR_EDGE = 24;

export function Axes({ xTicks, yTicks, frame }: Props): JSX.Element {
  const base = frame.height - frame.bottom;
  return (
    <g class="etv-axes" aria-hidden="true">
      {yTicks.map((tick) => (
        <g key={tick.text}>
          <line class="etv-rule" x1={frame.left} x2={frame.width - frame.right} y1={tick.at} y2={tick.at} />
          <text x={frame.left - 5} y={tick.at} dy="0.32em" text-anchor="end">
            {tick.text}
          </text>
        </g>
      ))}
      <line class="etv-base" x1={frame.left} x2={frame.width - frame.right} y1={base} y2={base} />
      {xTicks.map((tick) => (
        <g key={tick.text}>
          <line class="etv-base" x1={tick.at} x2={tick.at} y1={base} y2={base + 4} />
          <text x={tick.at} y={base + 14} text-anchor={tick.at > frame.width - NEAR_EDGE ? "end" : "middle"}>
            {tick.text}
          </text>
        </g>
      ))}
    </g>
  );
}
