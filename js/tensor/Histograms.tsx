// The two charts of a row: values of reference and runtime over shared bins, and their error.
import type { JSX } from "preact";
import type { TensorFacts } from "../state/tensor";
import { useApp } from "../ui/context";
import { Histogram, type Series } from "./Histogram";
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
  return [{ name: "reference", counts: facts.reference, tone: "reference", filled: true }, runtime];
}

export function Histograms({ facts }: { facts: TensorFacts }): JSX.Element {
  const log = useApp().view.logCounts.value;
  const series = valueSeries(facts);
  return (
    <>
      <Section title="Values" aside={<CountScale />}>
        <Histogram label="Histogram of the values" edges={facts.edges} series={series} log={log} />
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
