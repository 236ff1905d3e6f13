// One bar of the shares of an output's error; a press on a segment selects its row.
import type { JSX } from "preact";
import { numberAt, textAt } from "../state/columns";
import { formatCount, formatNumber } from "../state/format";
import type { Payload } from "../state/payload";
import type { Segment } from "../state/shares";
import { useApp } from "../ui/context";

function nameOf(payload: Payload, { row, rows }: Segment): string {
  if (row < 0) return `${formatCount(rows)} ${rows === 1 ? "other" : "others"}`;
  return textAt(payload.column("op"), row) ?? `row ${row}`;
}

function numberOf(payload: Payload, row: number): string {
  const instruction = numberAt(payload.column("instruction"), row);
  return row < 0 || Number.isNaN(instruction) ? "" : `#${instruction} `;
}

function saidOf(payload: Payload, segment: Segment): string {
  const { row, share } = segment;
  const less = share < 0 ? ": took error away" : "";
  return `${numberOf(payload, row)}${nameOf(payload, segment)}\n${formatNumber(share, "percent")} of the error${less}`;
}

interface Props {
  payload: Payload;
  segments: readonly Segment[];
}

export function Segments({ payload, segments }: Props): JSX.Element {
  const app = useApp();
  const selected = app.focusRow.value;
  return (
    <div class="etv-stacked" role="group" aria-label="Shares of the output's error">
      {segments.map((segment) => {
        const { row, share, rank } = segment;
        const said = saidOf(payload, segment);
        const content = (
          <span class="etv-segment-words">
            <span class="etv-segment-name">{numberOf(payload, row) + nameOf(payload, segment)}</span>
            <span class="etv-segment-share">{formatNumber(share, "percent")}</span>
          </span>
        );
        const shared = {
          class: "etv-segment",
          "data-rank": rank,
          "data-less": share < 0 ? true : undefined,
          "data-tip": said,
          style: { flexGrow: Math.abs(share) },
        };
        return row < 0 ? (
          <span key={`rest ${share < 0}`} {...shared}>
            {content}
          </span>
        ) : (
          <button
            key={row}
            type="button"
            {...shared}
            aria-label={said}
            aria-pressed={row === selected}
            onClick={() => app.selectRow(row)}
          >
            {content}
          </button>
        );
      })}
    </div>
  );
}
