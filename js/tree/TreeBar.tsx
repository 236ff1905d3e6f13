// The bar above the tree: which tree, and open or close everything.
import type { JSX } from "preact";
import type { TreeName } from "../state/contract";
import { branches } from "../state/tree";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";

const NAMES: [TreeName, string, string][] = [
  ["program", "Program", "Instructions in the order in which they run; delegates with their operators"],
  ["modules", "Modules", "The hierarchy of the model's nn.Modules"],
];

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
      <span class="etv-spring" />
      <button type="button" class="etv-button etv-square" aria-label="Expand all" data-tip="Expand all" onClick={expandAll}>
        <Icon name="expand" />
      </button>
      <button
        type="button"
        class="etv-button etv-square"
        aria-label="Collapse all"
        data-tip="Collapse all"
        onClick={() => app.setExpanded([])}
      >
        <Icon name="collapse" />
      </button>
    </div>
  );
}
