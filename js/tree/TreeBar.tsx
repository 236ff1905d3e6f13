// The bar above the tree: which tree, and open or close everything.
import type { JSX } from "preact";
import type { TreeName } from "../state/contract";
import { branches } from "../state/tree";
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
  const { treeName } = app.view;
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
            aria-pressed={treeName.value === name}
            data-tip={tip}
            onClick={() => (treeName.value = name)}
          >
            {text}
          </button>
        ))}
      </div>
      <RankSelect />
      <span class="etv-spring" />
      <SquareButton label="Expand all" icon="expand" onClick={expandAll} />
      <SquareButton label="Collapse all" icon="collapse" onClick={() => app.setExpanded([])} />
    </div>
  );
}
