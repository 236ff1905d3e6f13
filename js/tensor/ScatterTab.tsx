// The tab with runtime against reference as a density: on the diagonal both are equal. Colours are logarithmic.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { formatCount, formatMetric } from "../data/format";
import { type Scatter, scatterQuestion } from "../data/tensor";
import { Answered, useAnswer } from "./answer";
import { paintCounts } from "./colors";
import { type Cell, PixelGrid } from "./PixelGrid";
import { largest } from "./scales";

function ends(edges: Float64Array): [number, number] {
  return [edges[0], edges[edges.length - 1]];
}

/** Where reference and runtime are equal, in percent of the picture; null if that is outside of it. */
function diagonal(xEdges: Float64Array, yEdges: Float64Array): Record<string, string> | null {
  const [left, right] = ends(xEdges);
  const [bottom, top] = ends(yEdges);
  const low = Math.max(left, bottom);
  const high = Math.min(right, top);
  if (!(high > low)) return null;
  const x = (value: number): string => `${(100 * (value - left)) / (right - left)}%`;
  const y = (value: number): string => `${100 - (100 * (value - bottom)) / (top - bottom)}%`;
  return { x1: x(low), y1: y(low), x2: x(high), y2: y(high) };
}

function Density({ facts, stale }: { facts: Scatter; stale: boolean }): JSX.Element {
  const { xEdges, yEdges, counts, elements } = facts;
  const width = xEdges.length - 1;
  const height = yEdges.length - 1;
  const pixels = useMemo(() => paintCounts(counts, width, largest([counts])), [counts, width]);
  if (elements === 0) return <p class="etv-none">No pair of finite values to draw.</p>;
  const line = diagonal(xEdges, yEdges);
  const range = (edges: Float64Array, bin: number): string =>
    `[${formatMetric(edges[bin], 4)}, ${formatMetric(edges[bin + 1], 4)}]`;
  const read = ({ down, across }: Cell): JSX.Element => {
    const up = height - 1 - down;
    return (
      <>
        <span class="etv-tone-reference">reference {range(xEdges, across)}</span>
        <span class="etv-tone-runtime">runtime {range(yEdges, up)}</span>
        <span>{formatCount(counts[up * width + across])} elements</span>
      </>
    );
  };
  return (
    <div class="etv-scatter">
      <span class="etv-scatter-y etv-tone-runtime" aria-hidden="true">
        <span>{formatMetric(ends(yEdges)[1])}</span>
        <span class="etv-scatter-name">runtime</span>
        <span>{formatMetric(ends(yEdges)[0])}</span>
      </span>
      <div class="etv-scatter-plot">
        <PixelGrid
          label="Density of runtime against reference"
          height={height}
          width={width}
          ratio={1}
          pixels={pixels}
          read={read}
          idle={<span>{formatCount(elements)} elements; equal on the line</span>}
          stale={stale}
        >
          {line && (
            <svg class="etv-diagonal" aria-hidden="true">
              <line {...line} />
            </svg>
          )}
        </PixelGrid>
      </div>
      <span class="etv-scatter-x etv-tone-reference" aria-hidden="true">
        <span>{formatMetric(ends(xEdges)[0])}</span>
        <span>reference</span>
        <span>{formatMetric(ends(xEdges)[1])}</span>
      </span>
    </div>
  );
}

export function ScatterTab({ row }: { row: number }): JSX.Element {
  const answer = useAnswer(scatterQuestion(row));
  return <Answered answer={answer}>{(facts) => <Density facts={facts} stale={answer.stale} />}</Answered>;
}
