// What the tree shows: which tree, which nodes are open and visible, the worst row under each.
import { computed } from "@preact/signals";
import type { NumberColumn } from "./columns";
import { type Figures, figuresOf } from "./figures";
import type { GaugeOf } from "./gauge";
import { type Payload, type Tree, openAtFirst } from "./payload";
import type { Traits } from "./traits";
import { ancestorsOf, openFlags, positionOf, visibleNodes, worstRows } from "./tree";
import type { Read, ViewState } from "./view";

export interface NodesState {
  tree: Read<Tree | null>;
  expanded: Read<readonly number[]>;
  open: Read<Uint8Array>;
  visible: Read<Int32Array>;
  /** The worst row under each node of the tree by the gauge column, -1 for none. */
  worst: Read<Int32Array>;
  /** The bars of the nodes; null without a column to show. */
  figures: Read<Figures | null>;
  /** Position of a node among the visible nodes, -1 if it is inside a closed one. */
  positionOfNode(node: number): number;
  setExpanded(nodes: readonly number[]): void;
  toggleNode(node: number): void;
  openAncestors(node: number): void;
  openNode(node: number): void;
}

function worstUnder(payload: Payload | null, tree: Tree | null, column: NumberColumn | null): Int32Array {
  if (!payload || !tree) return new Int32Array(0);
  const badness = column && payload.badness(column.name);
  if (!badness) return new Int32Array(tree.nodes).fill(-1);
  return worstRows(tree, tree.parents, tree.rowNode, badness);
}

export function nodesState(
  traits: Traits,
  view: ViewState,
  payload: Read<Payload | null>,
  gaugeColumn: Read<NumberColumn | null>,
  gauge: Read<GaugeOf | null>,
): NodesState {
  const tree = computed(() => payload.value?.trees[view.treeName.value] ?? null);
  const expanded = computed(() => {
    if (view.treeName.value === "program") return traits.expanded.value;
    return view.moduleExpanded.value ?? (tree.value ? openAtFirst(tree.value) : []);
  });
  const open = computed(() => openFlags(tree.value?.nodes ?? 0, expanded.value));
  const visible = computed(() => (tree.value ? visibleNodes(tree.value, open.value) : new Int32Array(0)));
  const setExpanded = (ids: readonly number[]): void => {
    if (view.treeName.peek() === "program") traits.expanded.value = ids;
    else view.moduleExpanded.value = ids;
  };
  const worst = computed(() => worstUnder(payload.value, tree.value, gaugeColumn.value));
  return {
    tree,
    expanded,
    open,
    visible,
    worst,
    figures: computed(() =>
      figuresOf(payload.value, tree.value, gaugeColumn.value, worst.value, gauge.value),
    ),
    positionOfNode: (node) => positionOf(visible.value, node),
    setExpanded,
    toggleNode(node) {
      const ids = expanded.peek();
      setExpanded(ids.includes(node) ? ids.filter((id) => id !== node) : [...ids, node]);
    },
    openNode(node) {
      const ids = expanded.peek();
      if (node >= 0 && !ids.includes(node)) setExpanded([...ids, node]);
    },
    openAncestors(node) {
      const shown = tree.peek();
      if (!shown) return;
      const flags = open.peek();
      const closed = ancestorsOf(shown.parents, node).filter((id) => !flags[id]);
      if (closed.length) setExpanded([...expanded.peek(), ...closed]);
    },
  };
}
