// What only one view knows: chosen columns and filters, tree mode, log counts, pane sizes.
import { type ReadonlySignal, signal } from "@preact/signals";
import type { MapOf, TreeName } from "../kernel/contract";
import { DEFAULT_STATUSES, type Threshold } from "../data/filter";
import type { SortKey } from "../data/sort";

export type Tab = "tree" | "table" | "tensor";

/** How the delegated graph is shown. */
export type TreeMode = "tree" | "graph";

/** What the tensor pane draws. */
export type Chart = "histogram" | "map" | "channels" | "scatter";
export type ChannelMetric = "rmse" | "maxAbs" | "share";

/** What the tensor pane is about. */
export type Detail = { kind: "row"; row: number } | { kind: "node"; tree: TreeName; node: number };

export type Read<T> = ReadonlySignal<T>;

export function createViewState() {
  return {
    secondKey: signal<SortKey | null>(null),
    backend: signal<string | null>(null),
    kind: signal<string | null>(null),
    statuses: signal(DEFAULT_STATUSES),
    threshold: signal<Threshold | null>(null),
    /** Columns switched on or off by hand; the others follow the payload's default. */
    columnChoice: signal<ReadonlyMap<string, boolean>>(new Map()),
    columnWidths: signal<ReadonlyMap<string, number>>(new Map()),
    treeName: signal<TreeName>("program"),
    treeMode: signal<TreeMode>("tree"),
    moduleExpanded: signal<readonly number[] | null>(null),
    logCounts: signal(false),
    chart: signal<Chart>("histogram"),
    mapOf: signal<MapOf>("error"),
    logMap: signal(false),
    channelMetric: signal<ChannelMetric>("rmse"),
    /** Something selected that is not a gap row. */
    detail: signal<Detail | null>(null),
    tab: signal<Tab>("table"),
    /** Pane sizes in px once dragged; null follows the width of the view. */
    treeWidth: signal<number | null>(null),
    tensorWidth: signal<number | null>(null),
    tensorHeight: signal<number | null>(null),
  };
}

export type ViewState = ReturnType<typeof createViewState>;
