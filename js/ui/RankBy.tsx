// By what the rows are ranked, in one click: sorts the table, worst first, and says what the tree's
// bars stand for.
import type { JSX } from "preact";
import type { Payload } from "../data/payload";
import { ranksIn } from "../data/rank";
import { useApp } from "./context";
import { Select } from "./Select";
import { Switches } from "./Switches";

export function RankBy({ payload }: { payload: Payload }): JSX.Element | null {
  const { rows } = useApp();
  const ranks = ranksIn(payload);
  if (ranks.length < 2) return null;
  const shown = rows.gaugeColumn.value?.name ?? "";
  return (
    <span class="etv-rank">
      <span class="etv-rank-label">Rank by</span>
      <Switches
        label="Rank by"
        choices={ranks.map((rank) => ({
          ...rank,
          tip: `${rank.tip}. Sorts the table, worst first; the bars of the graph show it.`,
        }))}
        value={shown}
        onChange={(name) => rows.rankBy(name)}
      />
    </span>
  );
}

/** The same choice where there is little room. */
export function RankSelect({ payload }: { payload: Payload }): JSX.Element | null {
  const { rows } = useApp();
  const ranks = ranksIn(payload);
  if (ranks.length < 2) return null;
  return (
    <Select
      class="etv-rank-select"
      label="Rank by"
      data-tip="Meaning of the bars; also sorts the table"
      choices={ranks}
      value={rows.gaugeColumn.value?.name ?? ""}
      onChange={(name) => rows.rankBy(name)}
    />
  );
}
