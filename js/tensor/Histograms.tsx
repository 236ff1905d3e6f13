// The two charts of a row: values of reference and runtime over shared bins, and their error.
import type { JSX } from "preact";
import type { TensorFacts } from "../state/tensor";
import { useApp } from "../ui/context";
import { Histogram, type Series } from "./Histogram";
import { QuantizationNote } from "./QuantizationNote";
import { Section } from "./Section";

function CountScale(): JSX.Element {
  const { logCounts } = useApp().view;
  return (
    <div class="etv-switches" role="group" aria-label="Scale of the counts">
      {[false, true].map((log) => (
        <button
          key={String(log)}
          type="button"
          class="etv-switch"
          aria-pressed={logCounts.value === log}
          data-tip={log ? "Logarithmic counts: shows the tails" : "Linear counts"}
          onClick={() => (logCounts.value = log)}
        >
          {log ? "log" : "linear"}
        </button>
      ))}
    </div>
  );
}

function valueSeries(facts: TensorFacts): Series[] {
  const runtime: Series = { name: "runtime", counts: facts.runtime, tone: "runtime", filled: false };
  if (!facts.reference) return [{ ...runtime, filled: true }];
  const { quantization } = facts;
  const reference = quantization?.float ? "quantized" : "reference";
  const series: Series[] = [
    { name: reference, counts: facts.reference, tone: "reference", filled: true },
    runtime,
  ];
  if (!quantization?.float) return series;
  return [{ name: "float", counts: quantization.float, tone: "float", filled: false }, ...series];
}

function limitsOf({ quantization }: TensorFacts): readonly [number, number] | undefined {
  const { low = null, high = null } = quantization ?? {};
  return low === null || high === null ? undefined : [low, high];
}

export function Histograms({ facts }: { facts: TensorFacts }): JSX.Element {
  const log = useApp().view.logCounts.value;
  const series = valueSeries(facts);
  return (
    <>
      <Section title="Values" aside={<CountScale />}>
        <Histogram
          label="Histogram of the values"
          edges={facts.edges}
          series={series}
          log={log}
          limits={limitsOf(facts)}
        />
        {facts.quantization && <QuantizationNote found={facts.quantization} />}
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
          />
        </Section>
      )}
    </>
  );
}
