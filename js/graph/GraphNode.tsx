// One node of the graph: what it is, and a stripe in the colour of the error that it introduces.
import type { JSX } from "preact";
import type { Gauge } from "../data/gauge";
import { shortName } from "../data/name";
import { type Tree, shortBackend } from "../data/tree";
import { NODE_HEIGHT, NODE_WIDTH, type Placed } from "./picture";

interface Props {
  tree: Tree;
  placed: Placed;
  selected: boolean;
  /** Neither what the selected value depends on nor what depends on it. */
  aside: boolean;
  gauge: Gauge | null;
  /** Its introduced error in words. */
  figure: string;
  onSelect: (node: number) => void;
}

const LETTERS = 21;
const LETTERS_BELOW = 26;
const STRIPE = 5;

export function GraphNode({ tree, placed, selected, aside, gauge, figure, onSelect }: Props): JSX.Element {
  const { node, x, y } = placed;
  const kind = tree.text("kind", node) ?? "";
  const number = tree.text("number", node) ?? "";
  const name = tree.text("label", node) ?? "";
  const backend = shortBackend(tree.text("backend", node) ?? "");
  const below = [backend || (kind === "kernel" ? "portable" : ""), figure]
    .filter(Boolean)
    .join(" · ");
  const room = LETTERS - (number ? number.length + 1 : 0);
  const tip = [
    [number, name].filter(Boolean).join(" "),
    tree.text("shape", node),
    tree.text("module", node),
    tree.text("source", node),
    figure,
  ];
  const select = (): void => onSelect(node);
  return (
    <g
      class={`etv-graph-node etv-step-${gauge?.step ?? "none"}`}
      role="button"
      tabIndex={0}
      aria-pressed={selected}
      data-node={node}
      data-kind={kind}
      data-aside={aside ? true : undefined}
      data-tip={tip.filter(Boolean).join("\n")}
      transform={`translate(${x - NODE_WIDTH / 2} ${y - NODE_HEIGHT / 2})`}
      onClick={select}
      onKeyDown={(event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        select();
      }}
    >
      <rect class="etv-graph-box" width={NODE_WIDTH} height={NODE_HEIGHT} rx="4" />
      <rect class="etv-graph-stripe" width={STRIPE} height={NODE_HEIGHT} rx="2" />
      <text class="etv-graph-label" x={STRIPE + 6} y="15">
        {[number, shortName(name, room)].filter(Boolean).join(" ")}
      </text>
      <text class="etv-graph-below" x={STRIPE + 6} y="29">
        {below.length > LETTERS_BELOW ? `${below.slice(0, LETTERS_BELOW - 1)}…` : below}
      </text>
    </g>
  );
}
