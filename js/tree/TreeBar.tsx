// The bar above the tree: which tree, and open or close everything.
import { batch } from "@preact/signals";
import type { JSX } from "preact";
import type { TreeName } from "../state/contract";
import { branches } from "../state/tree";
import type { TreeMode } from "../state/view";
import { RankSelect } from "../table/RankBy";
import { useApp } from "../ui/context";
import { Icon, type IconName } from "../ui/Icon";

const NAMES: [TreeName, string, string][] = [
  ["program", "Program", "Instructions in the order in which they run; delegates with their operators"],
  ["modules", "Modules", "The hierarchy of the model's nn.Modules"],
];

function SquareButton(props: { label: string; icon: IconName; onClick: () => void }): JSX.Element {
  return (
    <button
      type="button"
      class="etv-button etv-square"
      aria-label={props.label}
      data-tip={props.label}
      onClick={props.onClick}
    >
      <Icon name={props.icon} />
    </button>
  );
}

export function TreeBar(): JSX.Element {
  const app = useApp();
  const { treeName, treeMode } = app.view;
  const graph = treeMode.value === "graph";
  const show = (name: TreeName, mode: TreeMode): void =>
    batch(() => {
      treeName.value = name;
      treeMode.value = mode;
    });
  const expandAll = (): void => {
    const tree = app.tree.peek();
    if (tree) app.setExpanded(branches(tree));
  };
  return (
    <div class="etv-pane-bar">
      <div class="etv-switches" role="group" aria-label="Tree">
        {NAMES.map(([name, text, tip]) => (
          <button
            key={name}
            type="button"
            class="etv-switch"
            aria-pressed={!graph && treeName.value === name}
            data-tip={tip}
            onClick={() => show(name, "tree")}
          >
            {text}
          </button>
        ))}
        {(app.payload.value?.edges.count ?? 0) > 0 && (
          <button
            type="button"
            class="etv-switch"
            aria-pressed={graph}
            data-tip="What the selected node reads and who reads it"
            onClick={() => show("program", "graph")}
          >
            Graph
          </button>
        )}
      </div>
      <RankSelect />
      <span class="etv-spring" />
      {!graph && (
        <>
          <SquareButton label="Expand all" icon="expand" onClick={expandAll} />
          <SquareButton label="Collapse all" icon="collapse" onClick={() => app.setExpanded([])} />
        </>
      )}
    </div>
  );
}
