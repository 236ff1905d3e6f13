// Whether the operators run one by one still give what the fused delegate gave. That they do is no praise of the row.
import type { JSX } from "preact";
import { formatMetric } from "../data/format";
import type { Zoom } from "../data/zooms";
import { Icon } from "./Icon";

function textOf({ faithful, deviation }: Zoom): string {
  if (faithful === null) return "zoom not checked";
  if (faithful) return "zoom faithful";
  return deviation === null ? "zoom differs" : `zoom differs by ${formatMetric(deviation, 2)}`;
}

function levelOf({ faithful }: Zoom): "warn" | undefined {
  return faithful === false ? "warn" : undefined;
}

/** The same as a mark, where there is little room. */
export function FaithfulMark({ zoom }: { zoom: Zoom }): JSX.Element {
  return (
    <span
      class="etv-zoom etv-zoomed"
      role="img"
      aria-label={textOf(zoom)}
      data-level={levelOf(zoom)}
      data-tip={`Zoomed. ${zoom.message}`}
    >
      <Icon name="zoom" />
    </span>
  );
}

export function FaithfulBadge({ zoom }: { zoom: Zoom }): JSX.Element {
  return (
    <span class="etv-badge etv-faithful" data-level={levelOf(zoom)} data-tip={zoom.message}>
      <Icon name="zoom" /> {textOf(zoom)}
    </span>
  );
}
