// The tab with the error by channel, as bars: along which axis, and by which metric. The worst is marked.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { formatCount, formatMetric, formatNumber } from "../data/format";
import { type Channels, channelAxis, channelsQuestion } from "../data/tensor";
import type { ChannelMetric } from "../state/view";
import { useApp } from "../ui/context";
import { type Choice, Switches } from "../ui/Switches";
import { useWidth } from "../ui/useWidth";
import { Answered, useAnswer } from "./answer";
import { AxisSelect } from "./AxisSelect";
import { BinChart } from "./chart";
import { type Frame, type Scales, barPath, channelScales, worstChannel } from "./scales";

const METRIC_NAMES: Record<ChannelMetric, string> = {
  rmse: "RMSE",
  maxAbs: "max |error|",
  share: "share of the squared error",
};

const METRICS: Choice<ChannelMetric>[] = [
  { name: "rmse", text: "RMSE", tip: METRIC_NAMES.rmse },
  { name: "maxAbs", text: "max", tip: METRIC_NAMES.maxAbs },
  { name: "share", text: "share", tip: METRIC_NAMES.share },
];

function valueText(value: number, metric: ChannelMetric): string {
  if (Number.isNaN(value)) return "not known";
  return metric === "share" ? formatNumber(value, "percent") : formatMetric(value);
}

interface ReadingProps {
  facts: Channels;
  metric: ChannelMetric;
  channel: number;
  worst: number;
}

function Reading({ facts, metric, channel, worst }: ReadingProps): JSX.Element {
  const at = channel >= 0 ? channel : worst;
  if (at < 0) return <>no error in any of {formatCount(facts.size)} channels</>;
  return (
    <>
      <span>
        {channel < 0 && "worst: "}channel {at}
      </span>
      <span class="etv-tone-error">
        {METRIC_NAMES[metric]} {valueText(facts[metric][at], metric)}
      </span>
      {metric !== "share" && <span>{formatNumber(facts.share[at], "percent")} of the squared error</span>}
    </>
  );
}

function markPath(scales: Scales, channel: number, value: number): string {
  const center = (scales.edge(channel) + scales.edge(channel + 1)) / 2;
  return `M${center - 4},${Math.max(1, scales.y(value) - 8)}h8l-4,6z`;
}

interface ChannelChartProps {
  facts: Channels;
  stale: boolean;
  onSelect: (channel: number) => void;
}

function ChannelChart({ facts, stale, onSelect }: ChannelChartProps): JSX.Element {
  const metric = useApp().view.channelMetric.value;
  const [box, width] = useWidth<HTMLDivElement>(340);
  if (facts.size === 0) return <p class="etv-none">The axis has no elements.</p>;
  const frame: Frame = { width, height: 150, left: 52, right: 10, top: 14, bottom: 20 };
  const scales = channelScales(facts, metric, frame);
  const values = facts[metric];
  const worst = worstChannel(values);
  return (
    <BinChart
      label={`${METRIC_NAMES[metric]} by channel of axis ${facts.axis}`}
      box={box}
      scales={scales}
      frame={frame}
      first={Math.max(0, worst)}
      stale={stale}
      onSelect={onSelect}
      read={(channel) => <Reading facts={facts} metric={metric} channel={channel} worst={worst} />}
    >
      <path class="etv-channel-bars" d={barPath(values, scales)} />
      {worst >= 0 && (
        <path class="etv-worst-mark" d={markPath(scales, worst, values[worst])} aria-hidden="true" />
      )}
    </BinChart>
  );
}

/** The axis is chosen anew for each row: shapes differ. */
export function ChannelsTab({ row, shape }: { row: number; shape: readonly number[] }): JSX.Element {
  const app = useApp();
  const { view, store } = app;
  const { channelMetric } = view;
  const { kernel } = store.source;
  const [chosen, setChosen] = useState<{ row: number; axis: number } | null>(null);
  const axis = chosen?.row === row ? chosen.axis : channelAxis(shape);
  const answer = useAnswer(channelsQuestion(row, axis));
  return (
    <>
      <div class="etv-chart-bar">
        <AxisSelect
          text="by"
          label="Axis of the channels"
          shape={shape}
          axis={kernel ? axis : (answer.facts?.axis ?? axis)}
          disabled={!kernel || shape.length < 2}
          onChange={(next) => setChosen({ row, axis: next })}
        />
        <span class="etv-spring" />
        <Switches
          label="Metric of the channels"
          choices={METRICS}
          value={channelMetric.value}
          onChange={(name) => (channelMetric.value = name)}
        />
      </div>
      <Answered answer={answer}>{(facts) => (
          <ChannelChart
            facts={facts}
            stale={answer.stale}
            onSelect={(channel) => app.lookAtSlice(row, shape, facts.axis, channel)}
          />
        )}</Answered>
    </>
  );
}
