// A map of numbers by layer (down) and by call or position (across), on a canvas. Arrows read it, a click or Enter
// chooses a column.
import type { JSX } from "preact";
import { useMemo, useState } from "preact/hooks";
import { formatMetric } from "../data/format";
import type { TokenMap } from "../data/tokens";
import { arrowOf, keysOf } from "../ui/keys";
import { useWidth } from "../ui/useWidth";
import { type Paint, usePicture } from "../ui/picture";

const TALLEST = 12;
const LOWEST = 4;
const MOST_HEIGHT = 160;
/** Severities from which a value deserves a look, and is a fault (docs/verdicts.md). */
const LOOK = 3;
const FAULT = 10;

interface Props {
  map: TokenMap;
  title: string;
  /** What the numbers are. */
  value: string;
  /** What a column is. */
  column: string;
  chosen: number;
  onChoose: (column: number) => void;
}

interface Place {
  layer: number;
  at: number;
}

function paintCell(context: CanvasRenderingContext2D, paint: Paint, value: number): void {
  const step = value >= FAULT ? 4 : value >= LOOK ? 2 : 0;
  context.fillStyle = paint(`--etv-step-${step}`);
  context.globalAlpha = step > 0 ? 1 : 0.12 + 0.5 * Math.min(1, value / LOOK);
}

export function StepMap({ map, title, value: about, column, chosen, onChoose }: Props): JSX.Element {
  const [box, width] = useWidth<HTMLDivElement>(600);
  const [place, setPlace] = useState<Place | null>(null);
  const { layers, values, width: columns } = map;
  const tall = Math.max(LOWEST, Math.min(TALLEST, Math.floor(MOST_HEIGHT / layers.length)));
  const height = tall * layers.length;
  const cell = width / Math.max(1, columns);
  const shown = useMemo(() => ({ map }), [map]);
  const [canvas, probe] = usePicture(
    width,
    height,
    (context, paint) => {
      const gap = cell > 3 ? 0.5 : 0;
      for (let k = 0; k < values.length; k++) {
        if (Number.isNaN(values[k])) continue;
        paintCell(context, paint, values[k]);
        context.fillRect((k % columns) * cell, Math.floor(k / columns) * tall, Math.max(1, cell - gap), tall - gap);
      }
      context.globalAlpha = 1;
    },
    shown,
  );
  const at = (event: MouseEvent): Place => {
    const frame = (event.currentTarget as HTMLElement).getBoundingClientRect();
    const clamp = (index: number, count: number): number => Math.max(0, Math.min(count - 1, index));
    return {
      layer: clamp(Math.floor((event.clientY - frame.top) / tall), layers.length),
      at: clamp(Math.floor((event.clientX - frame.left) / cell), columns),
    };
  };
  const onKeyDown = keysOf((event) => {
    const { across = 0, down = 0 } = arrowOf(event) ?? {};
    const from = place ?? { layer: 0, at: Math.max(0, chosen) };
    if (across || down) {
      setPlace({
        layer: Math.max(0, Math.min(layers.length - 1, from.layer + (place ? down : 0))),
        at: Math.max(0, Math.min(columns - 1, from.at + (place ? across : 0))),
      });
    } else if (event.key === "Enter" && place) onChoose(place.at);
    else return false;
    return true;
  });
  const read = place && values[place.layer * columns + place.at];
  const number = read === null || Number.isNaN(read) ? "not known" : formatMetric(read);
  const worst = values.reduce((best, value, k) => (value > (values[best] ?? -Infinity) ? k : best), -1);
  return (
    <div class="etv-step-map">
      <p class="etv-step-map-head">
        <b>{title}</b>
        <span aria-live="polite">
          {place ? `${layers[place.layer]}, ${column} ${place.at}: ${number}` : about}
          {!place && worst >= 0 && `, largest ${formatMetric(values[worst])} in ${layers[Math.floor(worst / columns)]}, ${column} ${worst % columns}`}
        </span>
      </p>
      <div
        class="etv-step-map-plot"
        ref={box}
        role="img"
        aria-label={`${title}: ${about}, ${layers.length} layers, ${columns} columns; arrows read it, Enter opens the ${column}`}
        tabIndex={0}
        style={{ height: `${height}px` }}
        onPointerMove={(event) => setPlace(at(event))}
        onPointerLeave={() => setPlace(null)}
        onBlur={() => setPlace(null)}
        onClick={(event) => onChoose(at(event).at)}
        onKeyDown={onKeyDown}
      >
        <span ref={probe} hidden />
        <canvas ref={canvas} />
        {chosen >= 0 && <span class="etv-step-chosen" style={{ left: `${chosen * cell}px`, width: `${Math.max(2, cell)}px` }} />}
        {place && (
          <span
            class="etv-step-pointed"
            style={{ left: `${place.at * cell}px`, top: `${place.layer * tall}px`, width: `${Math.max(2, cell)}px`, height: `${tall}px` }}
          />
        )}
      </div>
    </div>
  );
}
