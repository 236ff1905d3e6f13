// One node of the tree: label, backend, number of operators, worst gap as a bar, latency.
import type { JSX } from "preact";
import type { Figures as Shown } from "../state/figures";
import { formatCount, formatMilliseconds, formatNumber } from "../state/format";
import type { Tree } from "../state/payload";
import type { Zoom } from "../state/zooms";
import { GaugeBar } from "../ui/Gauge";
import { Icon } from "../ui/Icon";
import { memo } from "../ui/memo";
import { FaithfulMark } from "../zoom/FaithfulBadge";
import { ZoomButton } from "../zoom/ZoomButton";

export const TREE_ROW_HEIGHT = 26;
const INDENT = 12;

interface Props {
  tree: Tree;
  node: number;
  position: number;
  open: boolean;
  selected: boolean;
  reachable: boolean;
  /** Worst value at or under the node; NaN if there is none. */
  value: number;
  mismatch: boolean;
  figures: Shown | null;
  /** The row to look into; -1 if there is nothing to. */
  zoomable: number;
  zoom: Zoom | undefined;
  onToggle: (node: number) => void;
  onSelect: (node: number) => void;
}

function figureText({ value, mismatch, figures }: Props): string {
  if (!figures || (Number.isNaN(value) && !mismatch)) return "";
  const text = mismatch ? "non-finite mismatch" : formatNumber(value, figures.format);
  return `${figures.head === "sum" ? "sum of" : "worst"} ${figures.label}: ${text}`;
}

function shortBackend(backend: string): string {
  return backend.replace(/Backend$/, "");
}

function hasOwnRow(tree: Tree, node: number): boolean {
  return tree.rows.start[node + 1] > tree.rows.start[node];
}

function Twisty({
  branch,
  open,
  onToggle,
}: {
  branch: boolean;
  open: boolean;
  onToggle: () => void;
}): JSX.Element {
  if (!branch) return <span class="etv-twisty" />;
  const toggle = (event: Event): void => {
    event.stopPropagation();
    onToggle();
  };
  return (
    <span class="etv-twisty etv-twisty-on" data-open={open} onClick={toggle}>
      <Icon name="chevron" />
    </span>
  );
}

function Label({ tree, node, kind }: { tree: Tree; node: number; kind: string }): JSX.Element {
  const label = tree.text("label", node) ?? "";
  const op = tree.text("op", node);
  const tip = op && op !== label ? `${label}\n${op}` : label;
  return (
    <span class="etv-node-label" data-kind={kind} data-tip={tip} data-tip-clipped>
      {label}
    </span>
  );
}

function Figures(props: Props): JSX.Element {
  const { tree, node, figures } = props;
  const latency = tree.latency[node];
  const milliseconds = Number.isNaN(latency) ? "" : formatMilliseconds(latency);
  const operators = tree.operators[node];
  const text = figureText(props) || undefined;
  return (
    <>
      <span class="etv-node-ops" role="gridcell" data-tip={operators > 0 ? "operators inside" : undefined}>
        {operators > 0 ? formatCount(operators) : ""}
      </span>
      <span class="etv-node-worst" role="gridcell" aria-label={text} data-tip={text}>
        {figures && text && <GaugeBar gauge={figures.gauge(props.value, props.mismatch)} />}
      </span>
      <span class="etv-node-latency" role="gridcell" data-tip={milliseconds && `${milliseconds} ms`}>
        {milliseconds}
      </span>
    </>
  );
}

export const TreeRow = memo<Props>((props) => {
  const { tree, node, position, open } = props;
  const kind = tree.text("kind", node) ?? "value";
  const backend = kind === "delegate" ? tree.text("backend", node) : null;
  const branch = tree.size[node] > 1;
  const depth = tree.depth[node];
  const toggle = (): void => props.onToggle(node);
  return (
    <div
      class="etv-node"
      role="row"
      aria-rowindex={position + 2}
      aria-level={depth + 1}
      aria-expanded={branch ? open : undefined}
      aria-selected={props.selected}
      aria-keyshortcuts={props.zoomable >= 0 ? "Z" : undefined}
      tabIndex={props.reachable ? 0 : -1}
      data-node={node}
      data-muted={!branch && !hasOwnRow(tree, node) ? true : undefined}
      style={{ transform: `translateY(${position * TREE_ROW_HEIGHT}px)` }}
      onClick={() => props.onSelect(node)}
      onDblClick={branch ? toggle : undefined}
    >
      <span class="etv-node-name" role="gridcell" style={{ paddingLeft: `${4 + depth * INDENT}px` }}>
        <Twisty branch={branch} open={open} onToggle={toggle} />
        <span class={`etv-kind etv-kind-${kind}`} data-tip={kind} />
        <span class="etv-node-words">
          <Label tree={tree} node={node} kind={kind} />
          {backend && (
            <span class="etv-badge" data-tip={backend}>
              {shortBackend(backend)}
            </span>
          )}
        </span>
        {props.zoom && <FaithfulMark zoom={props.zoom} />}
        {props.zoomable >= 0 && <ZoomButton row={props.zoomable} />}
      </span>
      <Figures {...props} />
    </div>
  );
});
