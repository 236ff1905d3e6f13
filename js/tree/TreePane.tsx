// The delegated-graph tree: a windowed treegrid by program order or by module hierarchy.
import type { JSX } from "preact";
import { useCallback, useEffect } from "preact/hooks";
import { numberAt } from "../state/columns";
import { useApp } from "../ui/context";
import { useWindow } from "../ui/useWindow";
import { TreeBar } from "./TreeBar";
import { TREE_HEAD_HEIGHT, TreeHead } from "./TreeHead";
import { TREE_ROW_HEIGHT, TreeRow } from "./TreeRow";
import { useTreeKeys } from "./useTreeKeys";

export function TreePane(): JSX.Element {
  return (
    <section class="etv-pane etv-tree-pane" aria-label="Delegated graph">
      <TreeBar />
      <TreeGrid />
    </section>
  );
}

function TreeGrid(): JSX.Element {
  const app = useApp();
  const tree = app.tree.value;
  const payload = app.payload.value;
  const visible = app.visible.value;
  const focusNode = app.focusNode.value;
  const list = useWindow(visible.length, TREE_ROW_HEIGHT, TREE_HEAD_HEIGHT);
  const { onKeyDown, active } = useTreeKeys(list);
  const toggle = useCallback((node: number) => app.toggleNode(node), [app]);
  const select = useCallback(
    (node: number) => {
      active.value = node;
      const shown = app.tree.peek();
      if (shown) app.selectNode(shown, node);
    },
    [app],
  );

  useEffect(() => {
    if (focusNode < 0) return;
    active.value = focusNode;
    app.openAncestors(focusNode);
    const frame = requestAnimationFrame(() => list.show(app.positionOfNode(focusNode)));
    return () => cancelAnimationFrame(frame);
  }, [focusNode, tree]);

  if (!tree || !payload) return <div class="etv-tree" />;
  const { start, end } = list.window;
  const held = app.positionOfNode(active.value);
  const reachable = held >= 0 ? held : 0;
  const drawn: number[] = [];
  if (reachable < start && visible.length > 0) drawn.push(reachable);
  for (let position = start; position < end; position++) drawn.push(position);
  if (reachable >= end && visible.length > 0) drawn.push(reachable);
  const gauge = app.gauge.value;
  const column = app.gaugeColumn.value ?? undefined;

  return (
    <div
      class="etv-tree"
      role="treegrid"
      aria-label={app.view.treeName.value === "program" ? "Program order" : "Module hierarchy"}
      aria-rowcount={visible.length + 1}
      ref={list.ref}
      onKeyDown={onKeyDown}
    >
      <TreeHead gaugeLabel={column?.label ?? ""} />
      <div class="etv-tree-rows" role="rowgroup" style={{ height: `${visible.length * TREE_ROW_HEIGHT}px` }}>
        {drawn.map((position) => {
          const node = visible[position];
          const worst = app.worst.value[node];
          const value = worst < 0 ? NaN : numberAt(column, worst);
          const mismatch = worst >= 0 && payload.mismatch[worst] === 1;
          return (
            <TreeRow
              key={node}
              tree={tree}
              node={node}
              position={position}
              open={app.open.value[node] === 1}
              selected={node === focusNode}
              reachable={position === reachable}
              value={value}
              mismatch={mismatch}
              gauge={worst < 0 ? null : gauge}
              gaugeLabel={column?.label ?? ""}
              format={column?.format ?? "metric"}
              onToggle={toggle}
              onSelect={select}
            />
          );
        })}
      </div>
    </div>
  );
}
