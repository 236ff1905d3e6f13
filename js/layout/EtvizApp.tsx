// The whole view: header, filter bar, three panes, and the edge that changes its height.
// Widths decide the arrangement by container queries; in narrow places the panes stand below one another.
import { Fragment, type JSX } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { WireError } from "../kernel/contract";
import { isWaiting } from "../kernel/source";
import type { Payload } from "../data/payload";
import type { App } from "../state/app";
import { runCommand, runKey } from "../state/commands";
import { RetryButton } from "../ui/Button";
import { AppContext, useApp } from "../ui/context";
import { LevelIcon } from "../ui/Icon";
import { isTyping, keepKeys, useKeptFocus } from "../ui/keys";
import { RankBy } from "../ui/RankBy";
import { useScheme } from "../ui/scheme";
import { Tooltip } from "../ui/Tooltip";
import { useWidth } from "../ui/useWidth";
import { FilterBar } from "../table/FilterBar";
import { Table } from "../table/Table";
import { TreeBar } from "../tree/TreeBar";
import { TreeGrid } from "../tree/TreeGrid";
import { GraphPane } from "../graph/GraphPane";
import { Strip } from "../profile/Strip";
import { TensorPane } from "../tensor/TensorPane";
import { NoCall, TokenStrip } from "../tokens/TokenStrip";
import { Header, LargeButton } from "./Header";
import { Help } from "./Help";
import { KernelLine } from "./KernelLine";
import { Splitter } from "./Splitter";

/** What is around the view: a cell gives it a height of its own, a page its window, a side panel its element. */
export type Frame = "cell" | "page" | "panel";

const FILL = { page: "100vh", panel: "100%" };

/** Narrower than this, the panes stand below one another and the view is as high as they are (style/frame.css). */
const STACKED = 900;

/** Narrower than this, which is the least width of the tensor pane, no pane can be read. */
const NARROWEST = 220;

/** A thin line on top while the kernel works on something longer. */
function ProgressLine(): JSX.Element | null {
  const { progress: said, source } = useApp().store;
  const progress = said.value;
  if (!progress || !source.kernel) return null;
  const { label, done, total } = progress;
  return (
    <div
      class="etv-progress"
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={total}
      aria-valuenow={done}
      data-tip={`${label}: ${done} of ${total}`}
    >
      <span style={{ width: `${(100 * done) / total}%` }} />
    </div>
  );
}

function Loading(): JSX.Element {
  return (
    <div class="etv-loading" role="status" aria-label="Loading">
      <span class="etv-bone etv-bone-verdict" />
      <span class="etv-bone etv-bone-facts" />
      <div class="etv-bones">
        <span class="etv-bone" />
        <span class="etv-bone" />
        <span class="etv-bone" />
      </div>
    </div>
  );
}

function LoadFailed({ error, retry }: { error: WireError; retry: () => void }): JSX.Element {
  const waits = isWaiting(error);
  return (
    <div class="etv-failed" role={waits ? "status" : "alert"}>
      <p class="etv-empty-title">
        {!waits && <LevelIcon level="bad" />}
        {waits ? "The inspection is not here yet" : "The inspection could not be shown"}
      </p>
      <p class="etv-failed-message">{error.message}</p>
      <RetryButton retry={retry} />
    </div>
  );
}

function pixels(size: number | null): string | undefined {
  return size === null ? undefined : `${size}px`;
}

function Panes({ payload, stacked }: { payload: Payload; stacked: boolean }): JSX.Element {
  const app = useApp();
  const { treeMode, treeWidth, tensorWidth } = app.view;
  const sizes = {
    "--etv-tree-width": pixels(treeWidth.value),
    "--etv-tensor-width": pixels(tensorWidth.value),
  };
  return (
    <div class="etv-panes" style={sizes} data-graph={treeMode.value === "graph" ? true : undefined}>
      <section class="etv-pane etv-tree-pane" aria-label="Delegated graph">
        <TreeBar payload={payload} />
        {payload.beside.length > 0 && <p class="etv-tree-label">{payload.label}</p>}
        {treeMode.value === "graph" ? <GraphPane payload={payload} /> : <TreeGrid payload={payload} pages={stacked} />}
        {payload.beside.map(({ label, tree }) => (
          <Fragment key={tree}>
            <p class="etv-tree-label">{label}</p>
            <TreeGrid payload={payload} pages={stacked} nodes={app.nodesBeside(tree)} label={`Program order of ${label}`} />
          </Fragment>
        ))}
      </section>
      <Splitter
        class="etv-splitter etv-split-tree"
        label="Width of the tree"
        size={treeWidth}
        axis="x"
        of="before"
        min={140}
      />
      <section class="etv-pane etv-table-pane" aria-label="Gaps">
        <div class="etv-pane-bar etv-table-bar">
          <RankBy payload={payload} />
        </div>
        <Table payload={payload} pages={stacked} />
      </section>
      <Splitter
        class="etv-splitter etv-split-tensor"
        label="Width of the tensor pane"
        size={tensorWidth}
        axis="x"
        of="after"
        min={220}
      />
      <TensorPane payload={payload} />
    </div>
  );
}

interface Props {
  app: App;
  frame: Frame;
}

/** Full screen, and back. */
function useLarge(app: App, root: { readonly current: HTMLElement | null }): void {
  const { large, isLarge, said } = app.view;
  const wanted = large.value;
  const heard = useRef(wanted);
  useEffect(() => {
    const page = root.current?.ownerDocument;
    const follow = (): void => void (isLarge.value = root.current?.matches(":fullscreen") ?? false);
    page?.addEventListener("fullscreenchange", follow);
    return () => page?.removeEventListener("fullscreenchange", follow);
  }, []);
  useEffect(() => {
    const element = root.current;
    // What another place of the view was asked for is not asked of this one.
    if (wanted === heard.current || !element) return;
    heard.current = wanted;
    if (element.ownerDocument.fullscreenElement) void element.ownerDocument.exitFullscreen();
    else element.requestFullscreen?.().catch(() => (said.value = "Full screen is not allowed here"));
  }, [wanted]);
}

/** In a page of its own, the view takes the keys that nothing else has. */
function usePageKeys(app: App, root: { readonly current: HTMLElement | null }, alone: boolean): void {
  useEffect(() => {
    const page = root.current?.ownerDocument;
    if (!alone || !page) return;
    const listen = (event: KeyboardEvent): void => {
      const chord = event.ctrlKey || event.metaKey || event.altKey;
      if (event.target === page.body && !chord && runKey(app, event.key)) event.preventDefault();
    };
    page.addEventListener("keydown", listen);
    return () => page.removeEventListener("keydown", listen);
  }, [alone]);
}

/** Another method has rows of its own. */
function useMethod(app: App, method: string | null): void {
  const shown = useRef(method);
  useLayoutEffect(() => {
    if (shown.current !== null && method !== null && method !== shown.current) app.forget();
    shown.current = method ?? shown.current;
  }, [method]);
}

/** What Python or a link asked for, once there is something to do it with. */
function useCommands(app: App, ready: boolean): void {
  const asked = app.store.traits.commands.value;
  useEffect(() => {
    if (!ready) return;
    const unknown = asked.filter((command) => !runCommand(app, command));
    if (unknown.length > 0) app.view.said.value = `There is no command ${unknown[0]}`;
  }, [ready, asked]);
}

export function EtvizApp({ app, frame }: Props): JSX.Element {
  const [root, width] = useWidth<HTMLDivElement>(1000);
  const { payload, traits } = app.store;
  const height = frame === "cell" ? `${traits.height.value}px` : FILL[frame];
  const stacked = width < STACKED;
  useScheme(root);
  const { value } = payload;
  useKeptFocus(root);
  useLarge(app, root);
  useMethod(app, value.status === "ready" ? value.value.method : null);
  useCommands(app, value.status === "ready");
  usePageKeys(app, root, frame === "page");
  const onKeyDown = (event: KeyboardEvent): void => {
    const chord = event.ctrlKey || event.metaKey || event.altKey;
    if (!chord && !isTyping(event.target) && runKey(app, event.key)) event.preventDefault();
    keepKeys(event);
  };
  return (
    <AppContext.Provider value={app}>
      <div
        class="etviz"
        ref={root}
        role={frame === "page" ? "main" : undefined}
        tabIndex={-1}
        data-fill={frame !== "cell"}
        data-stacked={stacked ? frame : undefined}
        style={{ height: stacked && frame !== "panel" ? "auto" : height, "--etv-height": frame === "panel" ? "100vh" : height }}
        onKeyDown={onKeyDown}
      >
        <ProgressLine />
        <KernelLine />
        {value.status === "loading" && <Loading />}
        {value.status === "error" && <LoadFailed error={value.error} retry={() => app.store.loadPayload()} />}
        {value.status === "ready" && width < NARROWEST && (
          <div class="etv-narrow" role="note">
            <p>Too narrow for the view.</p>
            <LargeButton alone={false} />
          </div>
        )}
        {value.status === "ready" && width >= NARROWEST && (
          <>
            <Header payload={value.value} alone={frame === "page"} />
            {value.value.tokens && <TokenStrip payload={value.value} tokens={value.value.tokens} />}
            {value.value.tokens?.call === null ? (
              <NoCall />
            ) : (
              <>
                <Strip payload={value.value} />
                <FilterBar payload={value.value} />
                <Panes payload={value.value} stacked={stacked} />
              </>
            )}
          </>
        )}
        {frame === "cell" && !stacked && (
          <Splitter
            class="etv-edge"
            label="Height"
            size={traits.height}
            axis="y"
            of="around"
            min={200}
            max={4000}
            step={20}
          />
        )}
        <Help />
        <Tooltip root={root} />
      </div>
    </AppContext.Provider>
  );
}
