// The bar that shows how bad a value is.
import type { JSX } from "preact";
import type { Gauge } from "../state/gauge";

export function GaugeBar({ gauge }: { gauge: Gauge | null }): JSX.Element {
  return (
    <span class="etv-gauge" aria-hidden="true">
      {gauge && gauge.length > 0 && (
        <span
          class={`etv-gauge-fill etv-step-${gauge.step}`}
          style={{ width: `${Math.max(4, gauge.length * 100)}%` }}
        />
      )}
    </span>
  );
}
