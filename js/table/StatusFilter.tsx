// Switches for compared, grouped and not compared instructions, each with its count.
import type { JSX } from "preact";
import { formatCount } from "../state/format";
import { STATUSES, type StatusChoice } from "../state/filter";
import type { Payload } from "../state/payload";
import { DEFAULT_STATUSES } from "../state/view";
import { useApp } from "../ui/context";
import { statusCounts } from "./filters";

const HELP: Record<StatusChoice, string> = {
  compared: "Instructions whose value was compared with its own reference value",
  grouped: "Instructions that were compared together, as one value",
  "not compared": "Instructions without a gap; the column “reason” says why",
};

function toggled(chosen: ReadonlySet<StatusChoice>, name: StatusChoice): ReadonlySet<StatusChoice> {
  const next = new Set(chosen);
  if (!next.delete(name)) next.add(name);
  const same = next.size === DEFAULT_STATUSES.size && [...next].every((one) => DEFAULT_STATUSES.has(one));
  return same ? DEFAULT_STATUSES : next;
}

export function StatusFilter({ payload }: { payload: Payload }): JSX.Element {
  const { statuses } = useApp().view;
  const counts = statusCounts(payload);
  return (
    <div class="etv-switches" role="group" aria-label="Filter by status">
      {STATUSES.filter((name) => counts[name] > 0).map((name) => (
        <button
          key={name}
          type="button"
          class="etv-switch"
          aria-pressed={statuses.value.has(name)}
          data-tip={HELP[name]}
          onClick={() => (statuses.value = toggled(statuses.peek(), name))}
        >
          {name} <span class="etv-switch-count">{formatCount(counts[name])}</span>
        </button>
      ))}
    </div>
  );
}
