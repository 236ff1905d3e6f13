// What the tree shows: which tree, which nodes are open and visible, the worst row under each.
import { computed } from "@preact/signals";
import type { TreeName } from "../kernel/contract";
import type { Traits } from "../kernel/traits";
import { nodeBars } from "../data/nodeBars";
import type { Payload } from "../data/payload";
import { ancestorsOf, openAtFirst, openFlags, positionOf, visibleNodes, worstRows } from "../data/tree";
import type { Rows } from "./rows";
import type { Read, ViewState } from "./view";

export class Nodes {
  readonly tree = computed(() => this.payload.value?.trees[this.name.value] ?? null);

  readonly expanded = computed<readonly number[]>(() => {
    if (this.name.value === "program") return this.traits.expanded.value;
    return this.view.unfolded.value.get(this.name.value) ?? (this.tree.value ? openAtFirst(this.tree.value) : []);
  });

  /** The column that bars stand for; of another program, its own. */
  readonly #column = computed(() => {
    const column = this.rows.gaugeColumn.value;
    const payload = this.payload.value;
    const other = payload?.beside.find(({ tree }) => tree === this.name.value);
    const own = other && payload?.column(`${column?.name}${other.suffix}`);
    return own?.kind === "number" ? own : column;
  });

  readonly open = computed(() => openFlags(this.tree.value?.nodes ?? 0, this.expanded.value));

  /** Which nodes the filter leaves; null without a filter. */
  readonly left = computed(() =>
    this.tree.value && this.rows.filtered.value ? this.rows.nodesLeft(this.tree.value) : null,
  );

  readonly visible = computed(() =>
    this.tree.value ? visibleNodes(this.tree.value, this.open.value, this.left.value) : new Int32Array(0),
  );

  /** The worst row under each node of the tree by the gauge column, -1 for none. */
  readonly worst = computed(() => {
    const tree = this.tree.value;
    const column = this.#column.value;
    const badness = column && this.payload.value?.badness(column.name);
    return tree && badness ? worstRows(tree, badness) : new Int32Array(tree?.nodes ?? 0).fill(-1);
  });

  /** The bars of the nodes; null without a column to show. */
  readonly bars = computed(() => {
    const payload = this.payload.value;
    const tree = this.tree.value;
    const column = this.#column.value;
    return payload && tree && column ? nodeBars(payload, tree, column, this.worst.value) : null;
  });

  constructor(
    private readonly traits: Traits,
    private readonly view: ViewState,
    private readonly payload: Read<Payload | null>,
    private readonly rows: Rows,
    private readonly name: Read<TreeName>,
  ) {}

  /** Position of a node among the visible nodes, -1 if it is inside a closed one. */
  positionOf(node: number): number {
    return positionOf(this.visible.value, node);
  }

  setExpanded(nodes: readonly number[]): void {
    const name = this.name.peek();
    const { unfolded } = this.view;
    if (name === "program") this.traits.expanded.value = nodes;
    else unfolded.value = new Map(unfolded.peek()).set(name, nodes);
  }

  readonly toggle = (node: number): void => {
    const nodes = this.expanded.peek();
    this.setExpanded(nodes.includes(node) ? nodes.filter((id) => id !== node) : [...nodes, node]);
  };

  /** Open nodes that are not open yet. */
  reveal(nodes: readonly number[]): void {
    const flags = this.open.peek();
    const closed = nodes.filter((node) => node >= 0 && !flags[node]);
    if (closed.length) this.setExpanded([...this.expanded.peek(), ...closed]);
  }

  openAncestors(node: number): void {
    const tree = this.tree.peek();
    if (tree) this.reveal(ancestorsOf(tree.parents, node));
  }
}
