// The bar that shows how bad a value is; `part` of it, the part that was introduced, is drawn strong
// and the rest, which was inherited, pale.
import type { JSX } from "preact";
import type { Gauge } from "../data/gauge";

interface Props {
  gauge: Gauge | null;
  /** 0 to 1; not given where it is not known. */
  part?: number | undefined;
}

const SHORTEST = 4;

export function GaugeBar({ gauge, part }: Props): JSX.Element {
  const split = part !== undefined && !Number.isNaN(part);
  return (
    <span class="etv-gauge" aria-hidden="true">
      {gauge && gauge.length > 0 && (
        <span
          class={`etv-gauge-fill etv-step-${gauge.step}`}
          data-split={split ? true : undefined}
          style={{ width: `${Math.max(SHORTEST, gauge.length * 100)}%` }}
        >
          {split && <span class="etv-gauge-part" style={{ width: `${100 * part}%` }} />}
        </span>
      )}
    </span>
  );
}
