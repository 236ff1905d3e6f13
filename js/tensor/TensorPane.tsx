// The pane about whatever is selected: a row, a tree node, or nothing yet.
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { useApp } from "../ui/context";
import { NodeDetail } from "./NodeDetail";
import { RowDetail } from "./RowDetail";

function NothingSelected(): JSX.Element {
  const app = useApp();
  const payload = app.payload.value;
  const first = app.order.value[0];
  const canJump = payload !== null && first !== undefined && first < payload.compared;
  return (
    <div class="etv-empty">
      <p class="etv-empty-title">Nothing selected</p>
      <p>Select a row or a node to see its values in reference and runtime.</p>
      {canJump && (
        <button type="button" class="etv-button" onClick={() => app.selectRow(first)}>
          Show the first row
        </button>
      )}
    </div>
  );
}

export function TensorPane(): JSX.Element {
  const app = useApp();
  const payload = app.payload.value;
  const focus = app.focus.value;
  const pane = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    if (focus?.kind === "node" && pane.current) pane.current.scrollTop = 0;
  }, [focus]);
  return (
    <section class="etv-pane etv-tensor-pane" aria-label="Selected value" ref={pane} tabIndex={-1}>
      {payload && focus?.kind === "row" && focus.row < payload.rows && (
        <RowDetail payload={payload} row={focus.row} />
      )}
      {payload && focus?.kind === "node" && <NodeDetail tree={payload.trees[focus.tree]} node={focus.node} />}
      {payload && focus === null && <NothingSelected />}
    </section>
  );
}
