// Gives a panel room to read: JupyterLab opens a side area 250 px wide. What the person made wider stays.
import type { SplitPanel, Widget } from "./jupyterlab";

const READABLE = 440;
const SHARE = 0.4;

function isSplit(widget: Widget): widget is SplitPanel {
  return "relativeSizes" in widget && "setRelativeSizes" in widget;
}

/** Sizes (they sum to 1) with at least `wanted` for the one at `at`, taken from the largest other. */
export function givenRoom(sizes: readonly number[], at: number, wanted: number): number[] {
  const missing = wanted - (sizes[at] ?? 0);
  if (missing <= 0) return [...sizes];
  const others = sizes.map((size, index) => (index === at ? -1 : size));
  const largest = others.indexOf(Math.max(...others));
  return sizes.map((size, index) => (index === at ? wanted : index === largest ? size - missing : size));
}

export function widen(widget: Widget): void {
  let child: Widget = widget;
  for (let above = widget.parent; above; child = above, above = above.parent) {
    if (!isSplit(above)) continue;
    const at = above.widgets.indexOf(child);
    const width = above.node.clientWidth;
    if (at < 0 || width === 0 || child.node.clientWidth >= READABLE) return;
    const wanted = Math.min(READABLE, width * SHARE) / width;
    above.setRelativeSizes(givenRoom(above.relativeSizes(), at, wanted));
    return;
  }
}
