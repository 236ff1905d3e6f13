// The pane about whatever is selected: a row, a tree node, or nothing yet.
import type { JSX } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import type { Payload } from "../data/payload";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { NodeDetail } from "./NodeDetail";
import { RowDetail } from "./RowDetail";

function NothingSelected({ payload }: { payload: Payload }): JSX.Element {
  const { rows, selection } = useApp();
  const first = rows.order.value[0];
  return (
    <div class="etv-empty">
      <p class="etv-empty-title">Nothing selected</p>
      <p>Select a row or a node to see its values in reference and runtime.</p>
      {first < payload.rows && (
        <Button onClick={() => selection.selectRow(first)}>Show the first row</Button>
      )}
    </div>
  );
}

export function TensorPane({ payload }: { payload: Payload }): JSX.Element {
  const detail = useApp().selection.detail.value;
  const pane = useRef<HTMLElement>(null);
  useLayoutEffect(() => {
    if (detail?.kind === "node" && pane.current) pane.current.scrollTop = 0;
  }, [detail]);
  return (
    <section class="etv-pane etv-tensor-pane" aria-label="Selected value" ref={pane} tabIndex={-1}>
      {detail?.kind === "row" && <RowDetail payload={payload} row={detail.row} />}
      {detail?.kind === "node" && (
        <NodeDetail payload={payload} tree={payload.trees[detail.tree]} node={detail.node} />
      )}
      {detail === null && <NothingSelected payload={payload} />}
    </section>
  );
}
