// A signed share as a bar from a zero line: to the right what adds, to the left, hatched, what takes away.
import type { JSX } from "preact";
import { type NumberColumn, onceAColumn } from "../data/columns";

interface Scale {
  /** Most that is below zero, and most above; not both 0. */
  below: number;
  above: number;
}

const scaleOf = onceAColumn(({ values }): Scale => {
  let below = 0;
  let above = 0;
  for (const value of values) {
    if (value > above) above = value;
    if (-value > below) below = -value;
  }
  return below + above > 0 ? { below, above } : { below: 0, above: 1 };
});

export function ShareBar({ column, row }: { column: NumberColumn; row: number }): JSX.Element {
  const value = column.values[row];
  const { below, above } = scaleOf(column);
  const whole = below + above;
  const zero = (100 * below) / whole;
  const length = (100 * Math.min(whole, Math.abs(value))) / whole;
  return (
    <span class="etv-share" aria-hidden="true">
      {value !== 0 && !Number.isNaN(value) && (
        <span
          class={`etv-share-fill etv-step-${value < 0 ? "less" : "part"}`}
          style={{ left: `${value < 0 ? zero - length : zero}%`, width: `max(1px, ${length}%)` }}
        />
      )}
      {below > 0 && <span class="etv-share-zero" style={{ left: `${zero}%` }} />}
    </span>
  );
}
