// The slices along one more axis beside one another, on one scale: which of them the error is in. A press shows one large.
import { useSignalEffect, useSignal } from "@preact/signals";
import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef } from "preact/hooks";
import type { MapOf } from "../kernel/contract";
import { formatMetric } from "../data/format";
import { type ErrorMap, type MapChoice, mapQuestion } from "../data/tensor";
import type { MapScale } from "../state/view";
import { useApp } from "../ui/context";
import { ABOVE, ERROR, extent, paintSigned, spread } from "./colors";

/** Slices that are shown at once, and the most elements along their sides. */
const MOST = 16;
const SIZE = 64;
const LOWEST = 0.3;
const HIGHEST = 1.4;

function Picture({ map, most, of, log }: { map: ErrorMap; most: number; of: MapOf; log: boolean }): JSX.Element {
  const canvas = useRef<HTMLCanvasElement>(null);
  const { values, width, height } = map;
  useLayoutEffect(() => {
    const context = canvas.current?.getContext("2d");
    if (!context || values.length === 0) return;
    context.putImageData(new ImageData(paintSigned(values, most, log, of === "error" ? ERROR : ABOVE), width, height), 0, 0);
  }, [values, most, log, of]);
  const ratio = Math.min(HIGHEST, Math.max(LOWEST, height / Math.max(1, width)));
  return <canvas ref={canvas} width={width} height={height} style={{ aspectRatio: `1 / ${ratio}` }} />;
}

interface Props {
  map: ErrorMap;
  axis: number;
  of: MapOf;
  scale: MapScale;
  onSelect: (choice: MapChoice) => void;
}

export function Facets({ map, axis, of, scale, onSelect }: Props): JSX.Element {
  const { answers } = useApp().store;
  const at = map.index[axis];
  const first = Math.floor(at / MOST) * MOST;
  const count = Math.min(MOST, map.shape[axis] - first);
  const choices = useMemo(
    () =>
      Array.from({ length: count }, (_, k): MapChoice => {
        const index = map.index.map((old, other) => (other === axis ? first + k : old));
        return { of, axes: map.axes, index };
      }),
    [map.row, of, axis, first, count, map.axes.join(), map.index.filter((_, other) => other !== axis).join()],
  );
  const held = useSignal<readonly (ErrorMap | null)[]>([]);
  const asked = useSignal(choices);
  useEffect(() => void (asked.value = choices), [choices]);
  useSignalEffect(() => {
    const found = asked.value.map((choice) => answers.get(mapQuestion(map.row, choice, SIZE)).value);
    held.value = found.map((one) => (one.status === "ready" ? one.value : null));
  });
  const maps = held.value;
  const sizes = maps.map((one) => (one ? (scale === "trimmed" ? spread(one.values) : extent(one.low, one.high)) : 0));
  const most = Math.max(...sizes, 0);
  return (
    <div class="etv-facets" role="group" aria-label={`Slices along axis ${axis}`}>
      {choices.map((choice, k) => {
        const one = maps[k] ?? null;
        const index = first + k;
        const size = one ? extent(one.low, one.high) : NaN;
        return (
          <button
            type="button"
            key={index}
            class="etv-facet"
            aria-pressed={index === at}
            data-tip={one ? `axis ${axis} at ${index}: up to ${formatMetric(size)}` : `axis ${axis} at ${index}`}
            onClick={() => onSelect(choice)}
          >
            {one && <Picture map={one} most={most} of={of} log={scale === "log"} />}
            <span>{index}</span>
          </button>
        );
      })}
    </div>
  );
}
