// What only one view knows: chosen columns and filters, tree mode, log counts, pane sizes.
import { type ReadonlySignal, type Signal, signal } from "@preact/signals";
import type { MapOf, TreeName } from "./contract";
import type { StatusChoice, Threshold } from "./filter";
import type { SortKey } from "./sort";

export type Tab = "tree" | "table" | "tensor";

/** How the delegated graph is shown. */
export type TreeMode = "tree" | "graph";

/** What the tensor pane draws. */
export type Chart = "histogram" | "map" | "channels" | "scatter";
export type ChannelMetric = "rmse" | "maxAbs" | "share";

/** Something shown in the tensor pane that is not a gap row. */
export type Detail = { kind: "row"; row: number } | { kind: "node"; tree: TreeName; node: number };

export interface ViewState {
  secondKey: Signal<SortKey | null>;
  backend: Signal<string | null>;
  kind: Signal<string | null>;
  statuses: Signal<ReadonlySet<StatusChoice>>;
  threshold: Signal<Threshold | null>;
  /** Columns switched on or off by hand; the others follow the payload's default. */
  columnChoice: Signal<ReadonlyMap<string, boolean>>;
  columnWidths: Signal<ReadonlyMap<string, number>>;
  treeName: Signal<TreeName>;
  treeMode: Signal<TreeMode>;
  moduleExpanded: Signal<readonly number[] | null>;
  logCounts: Signal<boolean>;
  chart: Signal<Chart>;
  mapOf: Signal<MapOf>;
  logMap: Signal<boolean>;
  channelMetric: Signal<ChannelMetric>;
  detail: Signal<Detail | null>;
  tab: Signal<Tab>;
  /** Pane sizes in px once dragged; null follows the width of the view. */
  treeWidth: Signal<number | null>;
  tensorWidth: Signal<number | null>;
  tensorHeight: Signal<number | null>;
}

export type Read<T> = ReadonlySignal<T>;

export const DEFAULT_STATUSES: ReadonlySet<StatusChoice> = new Set(["compared", "grouped"]);

export function createViewState(): ViewState {
  return {
    secondKey: signal<SortKey | null>(null),
    backend: signal<string | null>(null),
    kind: signal<string | null>(null),
    statuses: signal(DEFAULT_STATUSES),
    threshold: signal<Threshold | null>(null),
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
    detail: signal<Detail | null>(null),
    tab: signal<Tab>("table"),
    treeWidth: signal<number | null>(null),
    tensorWidth: signal<number | null>(null),
    tensorHeight: signal<number | null>(null),
  };
}
