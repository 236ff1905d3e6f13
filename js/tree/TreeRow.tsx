// One node of the tree: label, backend, number of operators, worst gap as a bar, latency.
import type { JSX } from "preact";
import { formatCount, formatMilliseconds, formatNumber } from "../data/format";
import type { NodeBars } from "../data/nodeBars";
import { wholeName } from "../data/name";
import { type Tree, shortBackend } from "../data/tree";
import type { Zoom } from "../data/zooms";
import { FaithfulMark } from "../ui/FaithfulBadge";
import { GaugeBar } from "../ui/Gauge";
import { Icon } from "../ui/Icon";
import { Name } from "../ui/Name";
import { memo } from "../ui/memo";
import { ZoomButton } from "../ui/ZoomButton";

export const TREE_ROW_HEIGHT = 26;
const INDENT = 12;

interface Props {
  tree: Tree;
  node: number;
  position: number;
  open: boolean;
  selected: boolean;
  reachable: boolean;
  bars: NodeBars | null;
  /** The row to look into; -1 if there is nothing to. */
  zoomable: number;
  zoom: Zoom | undefined;
  onToggle: (node: number) => void;
  onSelect: (node: number) => void;
}

function barText({ head, column, value, mismatch }: NodeBars, node: number): string | undefined {
  if (Number.isNaN(value(node)) && !mismatch(node)) return undefined;
  const text = mismatch(node) ? "mismatch" : formatNumber(value(node), column.format);
  return `${head === "sum" ? "sum of" : "worst"} ${column.label}: ${text}`;
}

function Twisty({ open, toggle }: { open: boolean; toggle: () => void }): JSX.Element {
  const onClick = (event: Event): void => {
    event.stopPropagation();
    toggle();
  };
  return (
    <span class="etv-twisty etv-twisty-on" data-open={open} onClick={onClick}>
      <Icon name="chevron" />
    </span>
  );
}

function Label({ tree, node, kind }: { tree: Tree; node: number; kind: string }): JSX.Element {
  const label = tree.text("label", node) ?? "";
  const op = tree.text("op", node);
  const number = tree.text("number", node);
  const at = number ? `${number} ` : "";
  const whole = wholeName(label, tree.text("module", node) ?? "");
  const tip = op && op !== label ? `${whole}\n${op}` : whole;
  return (
    <span class="etv-node-label" data-kind={kind} data-tip={tip} data-tip-clipped>
      {at && <span class="etv-at">{at}</span>}
      <Name text={label} beside={at.length} />
    </span>
  );
}

function Figures({ tree, node, bars }: Props): JSX.Element {
  const latency = tree.latency[node];
  const milliseconds = Number.isNaN(latency) ? "" : formatMilliseconds(latency);
  const operators = tree.operators[node];
  const text = bars ? barText(bars, node) : undefined;
  const gauge = text ? bars?.gauge(node) : null;
  return (
    <>
      <span class="etv-node-ops" role="gridcell" data-tip={operators > 0 ? "operators inside" : undefined}>
        {operators > 0 ? formatCount(operators) : ""}
      </span>
      <span class="etv-node-worst" role="gridcell" aria-label={text} data-tip={text}>
        {gauge && gauge.length > 0 && <GaugeBar gauge={gauge} />}
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
      data-muted={!branch && tree.rowsOf(node).length === 0 ? true : undefined}
      style={{ transform: `translateY(${position * TREE_ROW_HEIGHT}px)` }}
      onClick={() => props.onSelect(node)}
      onDblClick={branch ? toggle : undefined}
    >
      <span class="etv-node-name" role="gridcell" style={{ paddingLeft: `${4 + depth * INDENT}px` }}>
        {branch ? <Twisty open={open} toggle={toggle} /> : <span class="etv-twisty" />}
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
