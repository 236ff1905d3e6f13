// A tree node without a row (a module, an operator inside a delegate): what is known about it,
// and why it has no numbers of its own.
import type { JSX } from "preact";
import { formatCount, formatMilliseconds } from "../data/format";
import type { Payload } from "../data/payload";
import type { Tree } from "../data/tree";
import { useApp } from "../ui/context";
import { Code } from "./Code";
import { type FactLine, Facts } from "./Facts";
import { RowLink } from "./RowLink";

interface Props {
  payload: Payload;
  tree: Tree;
  node: number;
}

/** The nearest node around `node` that is a delegate; -1 if it is in none. */
function delegateAround(tree: Tree, node: number): number {
  let up = node;
  while (up >= 0 && tree.text("kind", up) !== "delegate") up = tree.parents[up];
  return up;
}

function reasonOf(tree: Tree, node: number): string {
  const backend = tree.text("backend", Math.max(0, delegateAround(tree, node))) ?? "the delegate";
  switch (tree.text("kind", node)) {
    case "inner":
      return (
        `This operator runs inside ${backend}, as a part of one delegate call. The runtime gives ` +
        "out no value for it, so it has no numbers."
      );
    case "module":
    case "method":
    case "program":
      return "A group of instructions: its numbers come from the rows inside.";
    default:
      return "No value of this node was compared.";
  }
}

function Links({ payload, tree, node }: Props): JSX.Element | null {
  const { nodes, rows } = useApp();
  const column = rows.gaugeColumn.value;
  const delegate = tree.text("kind", node) === "inner" ? delegateAround(tree, node) : -1;
  const around = delegate >= 0 ? tree.rowsOf(delegate)[0] : undefined;
  const worst = nodes.tree.value === tree ? nodes.worst.value[node] : -1;
  if (worst < 0 && around === undefined) return null;
  return (
    <div class="etv-links">
      {worst >= 0 && <RowLink payload={payload} row={worst} text="Worst inside:" column={column} />}
      {around !== undefined && (
        <RowLink payload={payload} row={around} text="Its delegate:" column={column} />
      )}
    </div>
  );
}

function nodeFacts(tree: Tree, node: number): FactLine[] {
  const latency = tree.latency[node];
  const instruction = tree.instruction[node];
  const operators = tree.operators[node];
  const op = tree.text("op", node);
  return [
    { name: "op", value: op === tree.text("label", node) ? null : op, mono: true },
    { name: "shape", value: tree.text("shape", node), mono: true },
    { name: "backend", value: tree.text("backend", node) },
    { name: "instruction", value: instruction < 0 ? null : String(instruction) },
    { name: "operators", value: operators > 0 ? formatCount(operators) : null },
    { name: "latency", value: Number.isNaN(latency) ? null : `${formatMilliseconds(latency)} ms` },
  ];
}

export function NodeDetail({ payload, tree, node }: Props): JSX.Element {
  return (
    <>
      <div class="etv-detail-head">
        <h2 class="etv-detail-title">{tree.text("label", node)}</h2>
        <span class="etv-badge">{tree.text("kind", node)}</span>
      </div>
      <div class="etv-detail-body">
        <p class="etv-status" data-level="unknown">
          {reasonOf(tree, node)}
        </p>
        <Code tree={tree} node={node} module={tree.text("module", node)} source={tree.text("source", node)} />
        <Links payload={payload} tree={tree} node={node} />
        <Facts lines={nodeFacts(tree, node)} />
      </div>
    </>
  );
}
