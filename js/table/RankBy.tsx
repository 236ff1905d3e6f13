// By what the rows are ranked, in one click: sorts the table, worst first, and says what the tree's
// bars stand for.
import type { JSX } from "preact";
import { ranksIn } from "../state/rank";
import { useApp } from "../ui/context";
import { Switches } from "../ui/Switches";

export function RankBy(): JSX.Element | null {
  const app = useApp();
  const payload = app.payload.value;
  if (!payload) return null;
  const ranks = ranksIn(payload);
  if (ranks.length < 2) return null;
  const shown = app.gaugeColumn.value?.name ?? "";
  return (
    <span class="etv-rank">
      <span class="etv-rank-label">Rank by</span>
      <Switches
        label="Rank by"
        choices={ranks.map(({ column, text, tip }) => ({
          name: column,
          text,
          tip: `${tip}. Sorts the table, worst first; the bars of the graph show it.`,
        }))}
        value={ranks.some(({ column }) => column === shown) ? shown : null}
        onChange={(name) => app.rankBy(name)}
      />
    </span>
  );
}

/** The same choice where there is little room. */
export function RankSelect(): JSX.Element | null {
  const app = useApp();
  const payload = app.payload.value;
  if (!payload) return null;
  const ranks = ranksIn(payload);
  if (ranks.length < 2) return null;
  return (
    <select
      class="etv-select etv-rank-select"
      aria-label="Rank by"
      data-tip="What the bars stand for; also sorts the table"
      value={app.gaugeColumn.value?.name}
      onChange={(event) => app.rankBy(event.currentTarget.value)}
    >
      {ranks.map(({ column, text }) => (
        <option key={column} value={column}>
          {text}
        </option>
      ))}
    </select>
  );
}
