// A tree node without a row (a module, an operator inside a delegate): what is known about it,
// and why it has no numbers of its own.
import type { JSX } from "preact";
import { numberAt, textAt } from "../state/columns";
import { formatCount, formatMilliseconds, formatNumber } from "../state/format";
import type { Tree } from "../state/payload";
import { useApp } from "../ui/context";
import { type FactLine, Facts, StackTrace } from "./Facts";
import { Section } from "./Section";

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
        "out no value for it, so it has no numbers of its own."
      );
    case "module":
    case "method":
    case "program":
      return "A group of instructions: its numbers are those of the rows inside.";
    default:
      return "No value of this node was compared.";
  }
}

function RowLink({ row, text }: { row: number; text: string }): JSX.Element {
  const app = useApp();
  const payload = app.payload.value;
  const column = app.gaugeColumn.value;
  const op = textAt(payload?.column("op"), row) ?? `row ${row}`;
  const value = numberAt(column ?? undefined, row);
  const mismatch = payload?.mismatch[row] === 1;
  const reading = mismatch ? "non-finite mismatch" : column && formatNumber(value, column.format);
  return (
    <button type="button" class="etv-button etv-row-link" onClick={() => app.selectRow(row)}>
      <span>{text}</span> <span class="etv-mono">{op}</span>
      {reading && (
        <span class="etv-row-link-value">{mismatch ? reading : `${column?.label} ${reading}`}</span>
      )}
    </button>
  );
}

function Links({ tree, node }: { tree: Tree; node: number }): JSX.Element | null {
  const app = useApp();
  const delegate = tree.text("kind", node) === "inner" ? delegateAround(tree, node) : -1;
  const around = delegate >= 0 ? tree.rows.rows[tree.rows.start[delegate]] : undefined;
  const hasRow = delegate >= 0 && tree.rows.start[delegate + 1] > tree.rows.start[delegate];
  const worst = app.tree.value === tree ? app.worst.value[node] : -1;
  if (worst < 0 && !hasRow) return null;
  return (
    <div class="etv-links">
      {worst >= 0 && <RowLink row={worst} text="Worst inside:" />}
      {hasRow && around !== undefined && <RowLink row={around} text="Its delegate:" />}
    </div>
  );
}

function NodeOrigin({ tree, node }: { tree: Tree; node: number }): JSX.Element | null {
  const source = tree.text("source", node);
  const module = tree.text("module", node);
  const stack = tree.text("stack", node);
  if (!source && !module && !stack) return null;
  return (
    <Section title="Where it comes from">
      <Facts
        lines={[
          { name: "source", value: source, copy: true, mono: true },
          { name: "module", value: module, copy: true, mono: true },
        ]}
      />
      <StackTrace stack={stack} />
    </Section>
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

export function NodeDetail({ tree, node }: { tree: Tree; node: number }): JSX.Element {
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
        <Links tree={tree} node={node} />
        <Facts lines={nodeFacts(tree, node)} />
        <NodeOrigin tree={tree} node={node} />
      </div>
    </>
  );
}
