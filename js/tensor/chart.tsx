// A chart over bins: axes, and the bin that is pointed at (or moved to with the arrow keys) read out.
import type { ComponentChildren, JSX, RefObject } from "preact";
import { useRef, useState } from "preact/hooks";
import { followPointer } from "../ui/drag";
import { arrowOf } from "../ui/keys";
import type { Frame, Scales } from "./scales";

interface AxesProps {
  scales: Scales;
  frame: Frame;
}

const NEAR_EDGE = 24;
/** A drag, in px, that is more than a press. */
const BRUSH = 4;

function Axes({ scales, frame }: AxesProps): JSX.Element {
  const base = frame.height - frame.bottom;
  return (
    <g class="etv-axes" aria-hidden="true">
      {scales.yTicks.map((tick) => (
        <g key={tick.at}>
          <line class="etv-rule" x1={frame.left} x2={frame.width - frame.right} y1={tick.at} y2={tick.at} />
          <text x={frame.left - 5} y={tick.at} dy="0.32em" text-anchor="end">
            {tick.text}
          </text>
        </g>
      ))}
      <line class="etv-base" x1={frame.left} x2={frame.width - frame.right} y1={base} y2={base} />
      {scales.xTicks.map((tick) => (
        <g key={tick.at}>
          <line class="etv-base" x1={tick.at} x2={tick.at} y1={base} y2={base + 4} />
          <text x={tick.at} y={base + 14} text-anchor={tick.at > frame.width - NEAR_EDGE ? "end" : "middle"}>
            {tick.text}
          </text>
        </g>
      ))}
    </g>
  );
}

interface Props extends AxesProps {
  label: string;
  /** Of the element whose width the frame has. */
  box: RefObject<HTMLDivElement | null>;
  /** The bin that the first arrow key reads. */
  first?: number;
  stale?: boolean;
  /** A press on a bin, or Enter. */
  onSelect?: (bin: number) => void;
  /** A drag over bins, from the first to the last; without it a press is all there is. */
  onBrush?: (from: number, to: number) => void;
  /** Bins that are marked: the first and the last. */
  brushed?: readonly [number, number] | null;
  /** What is said about a bin; -1 while none is pointed at. */
  read: (bin: number) => ComponentChildren;
  /** Drawn under the bin that is pointed at. */
  behind?: ComponentChildren;
  children: ComponentChildren;
}

export function BinChart(props: Props): JSX.Element {
  const { scales, frame, label, first = 0 } = props;
  const [held, setBin] = useState(-1);
  const last = scales.bins - 1;
  const dragged = useRef<[number, number] | null>(null);
  const [span, setSpan] = useState<readonly [number, number] | null>(null);
  const marked = span ?? props.brushed ?? null;
  const onPointerDown = (event: PointerEvent): void => {
    const { onBrush } = props;
    if (!onBrush || event.button !== 0) return;
    const target = event.currentTarget as Element;
    const from = event.clientX - target.getBoundingClientRect().left;
    const within = (x: number): number => scales.binAt(Math.min(frame.width - frame.right - 1, Math.max(frame.left + 1, x)));
    target.setPointerCapture(event.pointerId);
    dragged.current = null;
    followPointer(
      event,
      target,
      (dx) => {
        if (Math.abs(dx) < BRUSH) return;
        const ends = [within(from), within(from + dx)].sort((a, b) => a - b) as [number, number];
        dragged.current = ends;
        setSpan(ends);
      },
      () => {
        setSpan(null);
        if (dragged.current) onBrush(...dragged.current);
      },
    );
  };
  const onClick = (): void => {
    if (bin >= 0 && !dragged.current) props.onSelect?.(bin);
    dragged.current = null;
  };
  const bin = Math.min(held, last);
  const onPointerMove = (event: PointerEvent): void => {
    const { left } = (event.currentTarget as Element).getBoundingClientRect();
    setBin(scales.binAt(event.clientX - left));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && bin >= 0) props.onSelect?.(bin);
    const by = arrowOf(event)?.across;
    if (!by) return;
    event.preventDefault();
    setBin(bin < 0 ? first : Math.min(last, Math.max(0, bin + by)));
  };
  return (
    <div class="etv-histogram" ref={props.box} data-stale={props.stale ? true : undefined}>
      <svg
        width={frame.width}
        height={frame.height}
        role="img"
        aria-label={label}
        tabIndex={0}
        onPointerMove={onPointerMove}
        onPointerLeave={() => setBin(-1)}
        onKeyDown={onKeyDown}
        onBlur={() => setBin(-1)}
        onPointerDown={onPointerDown}
        onClick={onClick}
      >
        <Axes scales={scales} frame={frame} />
        {props.behind}
        {marked && (
          <rect
            class="etv-brushed"
            x={scales.edge(marked[0])}
            width={Math.max(1, scales.edge(marked[1] + 1) - scales.edge(marked[0]))}
            y={frame.top}
            height={frame.height - frame.bottom - frame.top}
          />
        )}
        {bin >= 0 && (
          <rect
            class="etv-bin"
            x={scales.edge(bin)}
            width={Math.max(1, scales.edge(bin + 1) - scales.edge(bin))}
            y={frame.top}
            height={frame.height - frame.bottom - frame.top}
          />
        )}
        {props.children}
      </svg>
      <p class="etv-reading" aria-live="polite">
        {props.read(bin)}
      </p>
    </div>
  );
}
