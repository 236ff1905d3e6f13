// The bar above the tree: which tree or the graph, and open or close everything.
import { batch } from "@preact/signals";
import type { JSX } from "preact";
import type { TreeName } from "../kernel/contract";
import type { Payload } from "../data/payload";
import { branches } from "../data/tree";
import { IconButton } from "../ui/Button";
import { useApp } from "../ui/context";
import type { IconName } from "../ui/Icon";
import { RankSelect } from "../ui/RankBy";
import { type Choice, Switches } from "../ui/Switches";

type Shown = TreeName | "graph";

const TREES: Choice<Shown>[] = [
  {
    name: "program",
    text: "Program",
    tip: "Instructions in the order in which they run; delegates with their operators",
  },
  { name: "modules", text: "Modules", tip: "The hierarchy of the model's nn.Modules" },
];
const GRAPH: Choice<Shown> = {
  name: "graph",
  text: "Graph",
  tip: "Inputs and readers of the selected node",
};

function TreeButton(props: { label: string; icon: IconName; onClick: () => void }): JSX.Element {
  return <IconButton data-tip={props.label} {...props} />;
}

export function TreeBar({ payload }: { payload: Payload }): JSX.Element {
  const { nodes, view } = useApp();
  const { treeName, treeMode } = view;
  const graph = treeMode.value === "graph";
  const show = (shown: Shown): void =>
    batch(() => {
      treeName.value = shown === "graph" ? "program" : shown;
      treeMode.value = shown === "graph" ? "graph" : "tree";
    });
  const expandAll = (): void => {
    const tree = nodes.tree.peek();
    if (tree) nodes.setExpanded(branches(tree));
  };
  return (
    <div class="etv-pane-bar etv-tree-bar">
      <Switches
        label="Tree"
        choices={payload.edges.count > 0 ? [...TREES, GRAPH] : TREES}
        value={graph ? "graph" : treeName.value}
        onChange={show}
      />
      <RankSelect payload={payload} />
      <span class="etv-spring" />
      {!graph && (
        <>
          <TreeButton label="Expand all" icon="expand" onClick={expandAll} />
          <TreeButton label="Collapse all" icon="collapse" onClick={() => nodes.setExpanded([])} />
        </>
      )}
    </div>
  );
}
