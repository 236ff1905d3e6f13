// Whether the operators run one by one still give what the fused delegate gave.
import type { JSX } from "preact";
import type { Level } from "../state/contract";
import { formatMetric } from "../state/format";
import type { Zoom } from "../state/zooms";
import { Icon } from "../ui/Icon";

export function faithfulText({ faithful, deviation }: Zoom): string {
  if (faithful === null) return "not checked";
  if (faithful) return "bit for bit";
  return deviation === null ? "differs" : `differs by ${formatMetric(deviation, 2)}`;
}

function levelOf(faithful: boolean | null): Level {
  if (faithful === null) return "unknown";
  return faithful ? "ok" : "warn";
}

/** The same as a mark, where there is little room. */
export function FaithfulMark({ zoom }: { zoom: Zoom }): JSX.Element {
  const level = levelOf(zoom.faithful);
  return (
    <span
      class="etv-zoom etv-zoomed"
      role="img"
      aria-label={`zoomed: ${faithfulText(zoom)}`}
      data-level={level}
      data-tip={`Zoomed. ${zoom.message}`}
    >
      <Icon name={level} />
    </span>
  );
}

export function FaithfulBadge({ zoom }: { zoom: Zoom }): JSX.Element {
  const level = levelOf(zoom.faithful);
  return (
    <span class="etv-badge etv-faithful" data-level={level} data-tip={zoom.message}>
      <Icon name={level} /> {faithfulText(zoom)}
    </span>
  );
}
