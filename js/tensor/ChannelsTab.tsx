// The tab with the error by channel: along which axis, and by which metric.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { type Channels, channelAxis, channelsQuestion } from "../state/maps";
import type { ChannelMetric } from "../state/view";
import { useApp } from "../ui/context";
import { Switches } from "../ui/Switches";
import { ChannelChart, METRIC_NAMES } from "./ChannelChart";
import { ChartPlaceholder, Failure } from "./States";
import { useAnswer } from "./useAnswer";

const METRICS: { name: ChannelMetric; text: string; tip: string }[] = [
  { name: "rmse", text: "RMSE", tip: METRIC_NAMES.rmse },
  { name: "maxAbs", text: "max", tip: METRIC_NAMES.maxAbs },
  { name: "share", text: "share", tip: METRIC_NAMES.share },
];

interface AxisProps {
  shape: readonly number[];
  axis: number;
  disabled: boolean;
  onChange: (axis: number) => void;
}

function AxisSelect({ shape, axis, disabled, onChange }: AxisProps): JSX.Element {
  return (
    <label class="etv-axis">
      by
      <select
        class="etv-select"
        aria-label="Axis of the channels"
        disabled={disabled}
        value={String(axis)}
        onChange={(event) => onChange(Number(event.currentTarget.value))}
      >
        {shape.map((size, at) => (
          <option key={at} value={at}>
            axis {at} ({size})
          </option>
        ))}
      </select>
    </label>
  );
}

function Body({ facts, stale }: { facts: Channels; stale: boolean }): JSX.Element {
  const metric = useApp().view.channelMetric.value;
  if (facts.size === 0) return <p class="etv-none">The axis has no elements.</p>;
  return <ChannelChart facts={facts} metric={metric} stale={stale} />;
}

/** The axis is chosen anew for each row: shapes differ. */
export function ChannelsTab({ row, shape }: { row: number; shape: readonly number[] }): JSX.Element {
  const app = useApp();
  const { channelMetric } = app.view;
  const { kernel } = app.store.source;
  const [chosen, setChosen] = useState<{ row: number; axis: number } | null>(null);
  const axis = chosen?.row === row ? chosen.axis : channelAxis(shape);
  const { facts, stale, error, retry } = useAnswer(channelsQuestion(row, axis));
  return (
    <>
      <div class="etv-chart-bar">
        <AxisSelect
          shape={shape}
          axis={kernel ? axis : (facts?.axis ?? axis)}
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
      {error && <Failure error={error} retry={retry} />}
      {!error && !facts && <ChartPlaceholder />}
      {!error && facts && <Body facts={facts} stale={stale} />}
    </>
  );
}
