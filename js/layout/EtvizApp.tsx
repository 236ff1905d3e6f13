// The whole view: header, filter bar, three panes, and the edge that changes its height.
// Widths decide the arrangement by container queries; in narrow places the panes become tabs.
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { Header } from "../header/Header";
import { FilterBar } from "../table/FilterBar";
import { RankBy } from "../table/RankBy";
import { Table } from "../table/Table";
import type { App } from "../state/app";
import { TensorPane } from "../tensor/TensorPane";
import { TreePane } from "../tree/TreePane";
import { AppContext } from "../ui/context";
import { Tooltip } from "../ui/Tooltip";
import { useScheme } from "../ui/useScheme";
import { BottomEdge } from "./BottomEdge";
import { ProgressLine } from "./ProgressLine";
import { Splitter } from "./Splitter";
import { LoadFailed, Loading } from "./States";
import { Tabs } from "./Tabs";

/** What is around the view: a cell gives it a height of its own, a page its window, a side panel its element. */
export type Frame = "cell" | "page" | "panel";

interface Props {
  app: App;
  frame: Frame;
}

const FILL = { page: "100vh", panel: "100%" };

/** A notebook takes the arrow keys that reach it: sliders and selects would not move. */
function keepArrows(event: KeyboardEvent): void {
  if (event.key.startsWith("Arrow") && !event.ctrlKey && !event.metaKey && !event.altKey)
    event.stopPropagation();
}

function pixels(size: number | null): string | undefined {
  return size === null ? undefined : `${size}px`;
}

function Panes({ app }: { app: App }): JSX.Element {
  const { treeWidth, tensorWidth, tensorHeight, tab } = app.view;
  const sizes = {
    "--etv-tree-width": pixels(treeWidth.value),
    "--etv-tensor-width": pixels(tensorWidth.value),
    "--etv-tensor-height": pixels(tensorHeight.value),
  };
  return (
    <div class="etv-panes" style={sizes} data-tab={tab.value}>
      <TreePane />
      <Splitter
        size={treeWidth}
        axis="x"
        pane="before"
        label="Width of the tree"
        class="etv-split-tree"
        min={140}
      />
      <section class="etv-pane etv-table-pane" aria-label="Gaps">
        <div class="etv-pane-bar etv-table-bar">
          <RankBy />
        </div>
        <Table />
      </section>
      <Splitter
        size={tensorWidth}
        axis="x"
        pane="after"
        label="Width of the tensor pane"
        class="etv-split-tensor"
        min={220}
      />
      <Splitter
        size={tensorHeight}
        axis="y"
        pane="after"
        label="Height of the tensor pane"
        class="etv-split-below"
        min={80}
      />
      <TensorPane />
    </div>
  );
}

export function EtvizApp({ app, frame }: Props): JSX.Element {
  const root = useRef<HTMLDivElement>(null);
  const { payload } = app.store;
  const height = frame === "cell" ? `${app.store.traits.height.value}px` : FILL[frame];
  useScheme(root);
  const { value } = payload;
  return (
    <AppContext.Provider value={app}>
      <div
        class="etviz"
        ref={root}
        data-lm-suppress-shortcuts="true"
        data-fill={frame !== "cell"}
        style={{ height, "--etv-height": frame === "panel" ? "100vh" : height }}
        onKeyDown={keepArrows}
      >
        <ProgressLine />
        {value.status === "loading" && <Loading />}
        {value.status === "error" && <LoadFailed error={value.error} retry={() => app.store.loadPayload()} />}
        {value.status === "ready" && (
          <>
            <Header />
            <FilterBar />
            <Tabs />
            <Panes app={app} />
          </>
        )}
        {frame === "cell" && <BottomEdge />}
        <Tooltip root={root} />
      </div>
    </AppContext.Provider>
  );
}
