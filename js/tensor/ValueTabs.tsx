// The values of a row in four ways, as tabs. The likely fault of the row says which is open, until one is chosen: the
// choice stays when another row is selected.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Source } from "../kernel/source";
import type { Payload } from "../data/payload";
import { type TensorFacts, parseShape } from "../data/tensor";
import type { Chart } from "../state/view";
import { useApp } from "../ui/context";
import { TabList } from "../ui/TabList";
import { ChannelsTab } from "./ChannelsTab";
import { Histograms } from "./Histograms";
import { MapTab } from "./MapTab";
import { ScatterTab } from "./ScatterTab";

const CHARTS: { name: Chart; text: string; tip: string }[] = [
  { name: "histogram", text: "Histogram", tip: "Distribution of the values and of the error" },
  { name: "map", text: "Error map", tip: "Where in the tensor the error is" },
  { name: "channels", text: "Channels", tip: "The error along one axis" },
  { name: "scatter", text: "Scatter", tip: "Runtime against reference" },
];

/** In which chart each class of bugs (etviz/tensors/fingerprints.py) shows; the others show in the histogram. */
const SEEN_IN: Record<string, Chart> = {
  "permuted layout": "map",
  "border pixels": "map",
  "single bad channel": "channels",
  "scale factor": "scatter",
  "constant offset": "scatter",
  "wrong zero-point": "scatter",
  clipping: "scatter",
};

interface Props {
  payload: Payload;
  row: number;
  facts: TensorFacts;
}

/** What a class of bugs is seen best in. */
export function seenIn(name: string | undefined): Chart {
  return SEEN_IN[name ?? ""] ?? "histogram";
}

/** What a chart asks for. */
const ASKS = { map: "error_map", channels: "channels", scatter: "scatter", histogram: "tensor" };

/** What the likely fault of a row is seen best in, as far as a report has it. */
export function chartOf({ fingerprints }: Pick<TensorFacts, "fingerprints">, source: Pick<Source, "holds">, row: number): Chart {
  const best = seenIn(fingerprints[0]?.name);
  return (source.holds?.(ASKS[best], row) ?? true) ? best : "histogram";
}

function Panel({ payload, row, facts, chart }: Props & { chart: Chart }): JSX.Element {
  const shape = (facts.row === row && facts.shape) || parseShape(payload.text("shape", row)) || [];
  switch (chart) {
    case "map":
      return <MapTab row={row} />;
    case "channels":
      return shape.length === 0 ? (
        <p class="etv-none">A single number has no channels.</p>
      ) : (
        <ChannelsTab row={row} shape={shape} />
      );
    case "scatter":
      return <ScatterTab row={row} />;
    default:
      return <Histograms facts={facts} />;
  }
}

export function ValueTabs(props: Props): JSX.Element {
  const { store, view } = useApp();
  const { chart, charting } = view;
  const section = useRef<HTMLElement>(null);
  const wanted = charting.value;
  useEffect(() => {
    const own = section.current;
    if (wanted <= 0 || !own) return;
    const head = own.closest(".etv-tensor-pane")?.querySelector<HTMLElement>(".etv-detail-head");
    own.style.scrollMarginTop = `${head?.offsetHeight ?? 0}px`; // it stays at the top
    own.scrollIntoView({ block: "nearest" });
  }, [wanted]);
  const shown = chart.value ?? chartOf(props.facts, store.source, props.row);
  if (props.facts.reference === null) return <Histograms facts={props.facts} />;
  return (
    <section class="etv-values" ref={section}>
      <TabList
        label="Values of the row"
        class="etv-chart-tabs"
        tabs={CHARTS}
        value={shown}
        onChange={(name) => (chart.value = name)}
      />
      <div
        class="etv-chart"
        role="tabpanel"
        aria-label={CHARTS.find(({ name }) => name === shown)?.text}
      >
        <Panel {...props} chart={shown} />
      </div>
    </section>
  );
}
