// The heads of the tree's figures.
import type { JSX } from "preact";
import type { Figures } from "../state/figures";

export const TREE_HEAD_HEIGHT = 24;

export function TreeHead({ figures }: { figures: Figures | null }): JSX.Element {
  const label = figures?.label ?? "";
  const tip =
    figures?.head === "sum"
      ? `Sum of the ${label} at and under the node`
      : `Worst ${label} at or under the node`;
  return (
    <div class="etv-node etv-tree-head" role="row" aria-rowindex={1}>
      <span class="etv-node-name" role="columnheader">
        node
      </span>
      <span class="etv-node-ops" role="columnheader" data-tip="Operators inside a delegate or module">
        ops
      </span>
      <span class="etv-node-worst" role="columnheader" data-tip={tip}>
        {figures?.head ?? "worst"}
      </span>
      <span class="etv-node-latency" role="columnheader" data-tip="Latency of the instruction">
        ms
      </span>
    </div>
  );
}
