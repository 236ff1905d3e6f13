// Whether the operators run one by one still give what the fused delegate gave.
import type { JSX } from "preact";
import type { Level } from "../kernel/contract";
import { formatMetric } from "../data/format";
import type { Zoom } from "../data/zooms";
import { Icon } from "./Icon";

interface Verdict {
  level: Level;
  text: string;
}

function verdictOf({ faithful, deviation }: Zoom): Verdict {
  if (faithful === null) return { level: "unknown", text: "not checked" };
  if (faithful) return { level: "ok", text: "bit for bit" };
  return { level: "warn", text: deviation === null ? "differs" : `differs by ${formatMetric(deviation, 2)}` };
}

/** The same as a mark, where there is little room. */
export function FaithfulMark({ zoom }: { zoom: Zoom }): JSX.Element {
  const { level, text } = verdictOf(zoom);
  return (
    <span
      class="etv-zoom etv-zoomed"
      role="img"
      aria-label={`zoomed: ${text}`}
      data-level={level}
      data-tip={`Zoomed. ${zoom.message}`}
    >
      <Icon name={level} />
    </span>
  );
}

export function FaithfulBadge({ zoom }: { zoom: Zoom }): JSX.Element {
  const { level, text } = verdictOf(zoom);
  return (
    <span class="etv-badge etv-faithful" data-level={level} data-tip={zoom.message}>
      <Icon name={level} /> {text}
    </span>
  );
}
