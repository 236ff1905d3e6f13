// The error of each channel as bars; the worst is marked, pointing at one (or the arrow keys) reads it.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import { formatCount, formatNumber } from "../state/format";
import type { Channels } from "../state/maps";
import type { ChannelMetric } from "../state/view";
import { useWidth } from "../ui/useWidth";
import { Axes } from "./Axes";
import type { Frame } from "./bars";
import { type ChannelScales, barPath, channelScales, channelText, worstChannel } from "./channelBars";

interface Props {
  facts: Channels;
  metric: ChannelMetric;
  stale: boolean;
}

const HEIGHT = 150;

export const METRIC_NAMES: Record<ChannelMetric, string> = {
  rmse: "RMSE",
  maxAbs: "max |error|",
  share: "share of the squared error",
};

function Reading({ facts, metric, channel, worst }: Props & { channel: number; worst: number }): JSX.Element {
  const at = channel >= 0 ? channel : worst;
  if (at < 0) return <p class="etv-reading">no error in any of {formatCount(facts.size)} channels</p>;
  return (
    <p class="etv-reading" aria-live="polite">
      <span>
        {channel < 0 && "worst: "}channel {at}
      </span>
      <span class="etv-tone-error">
        {METRIC_NAMES[metric]} {channelText(facts[metric][at], metric)}
      </span>
      {metric !== "share" && <span>{formatNumber(facts.share[at], "percent")} of the squared error</span>}
    </p>
  );
}

function Mark({
  scales,
  channel,
  value,
}: {
  scales: ChannelScales;
  channel: number;
  value: number;
}): JSX.Element {
  const center = (scales.x(channel) + scales.x(channel + 1)) / 2;
  const top = Math.max(1, scales.y(value) - 8);
  return <path class="etv-worst-mark" d={`M${center - 4},${top}h8l-4,6z`} aria-hidden="true" />;
}

export function ChannelChart({ facts, metric, stale }: Props): JSX.Element {
  const [ref, width] = useWidth<HTMLDivElement>(340);
  const [held, setChannel] = useState(-1);
  const frame: Frame = { width, height: HEIGHT, left: 52, right: 10, top: 14, bottom: 20 };
  const scales = channelScales(facts, metric, frame);
  const values = facts[metric];
  const worst = worstChannel(values);
  const channel = Math.min(held, facts.size - 1);
  const move = (to: number): void => setChannel(Math.min(facts.size - 1, Math.max(0, to)));
  const onPointerMove = (event: PointerEvent): void => {
    const box = (event.currentTarget as Element).getBoundingClientRect();
    move(scales.channel(event.clientX - box.left));
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    move(channel < 0 ? Math.max(0, worst) : channel + by);
  };
  return (
    <div class="etv-histogram" ref={ref} data-stale={stale ? true : undefined}>
      <svg
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={`${METRIC_NAMES[metric]} by channel of axis ${facts.axis}`}
        tabIndex={0}
        onPointerMove={onPointerMove}
        onPointerLeave={() => setChannel(-1)}
        onKeyDown={onKeyDown}
        onBlur={() => setChannel(-1)}
      >
        <Axes xTicks={scales.xTicks} yTicks={scales.yTicks} frame={frame} />
        {channel >= 0 && (
          <rect
            class="etv-bin"
            x={scales.x(channel)}
            width={Math.max(1, scales.x(channel + 1) - scales.x(channel))}
            y={frame.top}
            height={HEIGHT - frame.bottom - frame.top}
          />
        )}
        <path class="etv-channel-bars" d={barPath(values, scales)} />
        {worst >= 0 && <Mark scales={scales} channel={worst} value={values[worst]} />}
      </svg>
      <Reading facts={facts} metric={metric} stale={stale} channel={channel} worst={worst} />
    </div>
  );
}
