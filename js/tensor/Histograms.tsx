// The two charts of a row: values of reference and runtime over shared bins, and their error.
import type { JSX } from "preact";
import { formatCount, formatMetric, formatNumber } from "../data/format";
import type { Quantization, TensorFacts } from "../data/tensor";
import type { Mask } from "../state/view";
import { useApp } from "../ui/context";
import { Switches } from "../ui/Switches";
import { useWidth } from "../ui/useWidth";
import { BinChart } from "./chart";
import { type FactLine, Facts } from "./Facts";
import { type Frame, type Scales, histogramScales, largest, outline } from "./scales";
import { Section } from "./Section";

interface Series {
  name: string;
  counts: Float64Array;
  tone: "reference" | "runtime" | "error" | "float" | "beside";
  /** An area; otherwise a line. */
  filled: boolean;
}

type Range = readonly [number, number];

interface LimitsProps {
  limits: Range;
  scales: Scales;
  frame: Frame;
}

/** The ends of the range as lines, what is beyond as a shade. */
function Limits({ limits, scales, frame }: LimitsProps): JSX.Element {
  const left = frame.left;
  const right = frame.width - frame.right;
  const base = frame.height - frame.bottom;
  const at = limits.map((value) => Math.min(right, Math.max(left, scales.x(value))));
  const shades = [
    [left, at[0]],
    [at[1], right],
  ];
  return (
    <g class="etv-limits" aria-hidden="true">
      {shades.map(([from, to], side) => (
        <rect key={side} x={from} width={Math.max(0, to - from)} y={frame.top} height={base - frame.top} />
      ))}
      {at
        .filter((x) => x > left && x < right)
        .map((x) => (
          <line key={x} x1={x} x2={x} y1={frame.top} y2={base} />
        ))}
    </g>
  );
}

interface ReadingProps {
  edges: Float64Array;
  series: Series[];
  bin: number;
}

function Reading({ edges, series, bin }: ReadingProps): JSX.Element {
  const last = bin === edges.length - 2;
  return (
    <>
      {series.map(({ name, counts, tone, filled }) => (
        <span key={name} class={`etv-tone-${tone}`}>
          <span class="etv-key" data-tone={tone} data-filled={filled} aria-hidden="true" />
          {name} {bin >= 0 && formatCount(counts[bin])}
        </span>
      ))}
      {bin >= 0 && (
        <span class="etv-range" data-side={bin * 2 < edges.length ? "right" : "left"}>
          [{formatMetric(edges[bin], 4)}, {formatMetric(edges[bin + 1], 4)}
          {last ? "]" : ")"}
        </span>
      )}
    </>
  );
}

interface HistogramProps {
  label: string;
  edges: Float64Array;
  series: Series[];
  log: boolean;
  height?: number;
  /** The range that the values can have: beyond it they saturate. */
  limits?: Range | undefined;
  /** What a drag over the bins chooses; null where no map can show it. */
  chooses: { row: number; of: Mask["of"] } | null;
}

/** The bins that a mask chose, if it was chosen here. */
function binsOf(edges: Float64Array, mask: Mask): [number, number] | null {
  const from = edges.indexOf(mask.low);
  const to = edges.indexOf(mask.high);
  return from >= 0 && to > from ? [from, to - 1] : null;
}

/** Histograms over shared bins, drawn over each other. */
function Histogram({ label, edges, series, log, height = 132, limits, chooses }: HistogramProps): JSX.Element {
  const app = useApp();
  const { mask } = app.view;
  const [box, width] = useWidth<HTMLDivElement>(340);
  const most = largest(series.map(({ counts }) => counts));
  const frame: Frame = { width, height, left: 38, right: 12, top: 8, bottom: 20 };
  const scales = histogramScales(edges, most, log, frame);
  if (most === 0) return <p class="etv-none">No finite values to draw.</p>;
  const held = chooses && mask.value?.row === chooses.row && mask.value.of === chooses.of ? mask.value : null;
  const choose = (from: number, to: number): void => {
    if (chooses) app.showMask({ ...chooses, low: edges[from], high: edges[to + 1] });
  };
  return (
    <BinChart
      {...(chooses ? { onBrush: choose, onSelect: (bin: number) => choose(bin, bin), brushed: held && binsOf(edges, held) } : {})}
      label={label}
      box={box}
      scales={scales}
      frame={frame}
      read={(bin) => <Reading edges={edges} series={series} bin={bin} />}
      behind={limits && <Limits limits={limits} scales={scales} frame={frame} />}
    >
      {series.map(({ name, counts, tone, filled }) => (
        <path
          key={name}
          class={`etv-bars etv-bars-${tone}`}
          data-filled={filled}
          d={outline(counts, scales, filled)}
        />
      ))}
    </BinChart>
  );
}

const SCALES = [
  { name: "linear", text: "linear", tip: "Linear counts" },
  { name: "log", text: "log", tip: "Logarithmic counts: shows the tails" },
];

function valueSeries(facts: TensorFacts): Series[] {
  const { reference, runtime, label } = facts;
  const float = reference && facts.quantization?.float;
  const series: Series[] = [{ name: label, counts: runtime, tone: "runtime", filled: !reference }];
  if (reference) {
    series.unshift({ name: float ? "quantized" : "reference", counts: reference, tone: "reference", filled: true });
  }
  for (const { label, counts, beyond } of facts.beside) {
    const rest = beyond > 0 ? ` (${formatCount(beyond)} beyond the bins)` : "";
    series.push({ name: `${label}${rest}`, counts, tone: "beside", filled: false });
  }
  return float ? [{ name: "float", counts: float, tone: "float", filled: false }, ...series] : series;
}

function limitsOf({ quantization }: TensorFacts): Range | undefined {
  const { low = null, high = null } = quantization ?? {};
  return low === null || high === null ? undefined : [low, high];
}

/** RMSE of rounding to the nearest step, in steps: 1/√12. */
const IDEAL_STEPS = 1 / Math.sqrt(12);

function metric(value: number | null): string {
  return value === null || Number.isNaN(value) ? "not known" : formatMetric(value);
}

/** How the values lie in the quantization range, and the error in its steps. */
function quantizationLines(quantization: Quantization): FactLine[] {
  const { scale, zeroPoint, qmin, qmax, low, high, errorSteps, saturated } = quantization;
  const integers = qmin === null || qmax === null ? "" : ` for ${qmin} to ${qmax}`;
  const steps = `${metric(errorSteps)} steps RMSE (ideal rounding: ${formatMetric(IDEAL_STEPS)})`;
  return [
    { name: "range", value: low === null ? null : `[${metric(low)}, ${metric(high)}]${integers}` },
    {
      name: "scale",
      value: scale === null ? null : `${metric(scale)}, zero point ${zeroPoint ?? "not known"}`,
    },
    { name: "error", value: errorSteps === null ? null : steps },
    { name: "saturated", value: saturated === null ? null : formatNumber(saturated, "percent") },
  ];
}

export function Histograms({ facts }: { facts: TensorFacts }): JSX.Element {
  const { store, view } = useApp();
  const { logCounts } = view;
  const { kernel } = store.source;
  const { row } = facts;
  const log = logCounts.value;
  const scale = (
    <Switches
      label="Scale of the counts"
      choices={SCALES}
      value={log ? "log" : "linear"}
      onChange={(name) => (logCounts.value = name === "log")}
    />
  );
  return (
    <>
      <Section title="Values" aside={scale}>
        <Histogram
          label="Histogram of the values"
          edges={facts.edges}
          series={valueSeries(facts)}
          log={log}
          limits={limitsOf(facts)}
          chooses={kernel && facts.reference ? { row, of: "values" } : null}
        />
        {facts.quantization && <Facts lines={quantizationLines(facts.quantization)} />}
        {facts.referenceMissing && <p class="etv-note-inline">{facts.referenceMissing}</p>}
      </Section>
      {facts.error && facts.errorEdges && (
        <Section title="Error" hint="runtime − reference, where both are finite">
          <Histogram
            label="Histogram of the error"
            edges={facts.errorEdges}
            series={[{ name: "error", counts: facts.error, tone: "error", filled: true }]}
            log={log}
            height={108}
            chooses={{ row, of: "error" }}
          />
        </Section>
      )}
    </>
  );
}
