// What only one view knows: chosen columns and filters, tree mode, log counts, pane sizes.
import { type ReadonlySignal, signal } from "@preact/signals";
import type { MapOf, TreeName, WireExplained, WireWhatIf } from "../kernel/contract";
import type { SortKey } from "../data/sort";

/** How the delegated graph is shown. */
export type TreeMode = "tree" | "graph";

/** What is drawn between the header and the panes: the error along the program, or what was timed. */
export type Strip = "error" | "time";

/** What the tensor pane draws. */
export type Chart = "histogram" | "map" | "channels" | "scatter";
/** What the strongest colour of a map stands for: the largest value, three deviations, or the largest by decades. */
export type MapScale = "linear" | "trimmed" | "log";
export type ChannelMetric = "rmse" | "maxAbs" | "share";

/** What the tensor pane is about. */
export type Detail = { kind: "row"; row: number } | { kind: "node"; tree: TreeName; node: number };

/** A span of a row's values or of its error, as bins of a histogram give it; the upper end of the last bin belongs to it. */
export interface Mask {
  row: number;
  of: "values" | "error";
  low: number;
  high: number;
}

export type Read<T> = ReadonlySignal<T>;

export function createViewState() {
  return {
    secondKey: signal<SortKey | null>(null),
    /** Rows that stay on top of the table, whatever it is sorted by and whatever the filter says. */
    pins: signal<readonly number[]>([]),
    /** Delegate calls whose inside the table does not show. */
    closedCalls: signal<ReadonlySet<number>>(new Set()),
    /** Columns switched on or off by hand; the others follow the payload's default. */
    columnChoice: signal<ReadonlyMap<string, boolean>>(new Map()),
    columnWidths: signal<ReadonlyMap<string, number>>(new Map()),
    treeName: signal<TreeName>("program"),
    treeMode: signal<TreeMode>("tree"),
    /** Open nodes of trees other than the program's; those that are not here are open as at first. */
    unfolded: signal<ReadonlyMap<TreeName, readonly number[]>>(new Map()),
    logCounts: signal(false),
    /** What the tensor pane draws; null: what the row's likely fault is seen best in. */
    chart: signal<Chart | null>(null),
    /** Counts the wishes to see what the tensor pane draws. */
    charting: signal(0),
    /** An element that is looked at, and the row whose it is. */
    element: signal<{ row: number; index: readonly number[] } | null>(null),
    /** What is typed after ">" in the search box; null while it holds a query. */
    palette: signal<string | null>(null),
    strip: signal<Strip>("error"),
    /** The execution whose times are shown; null: the typical one. */
    timedRun: signal<number | null>(null),
    /** The milliseconds that the timeline shows; null: all. */
    timeSpan: signal<readonly [number, number] | null>(null),
    /** Counts the wishes to have the profile as a picture. */
    pictures: signal(0),
    /** Counts the wishes to type into the search box. */
    searching: signal(0),
    /** Counts the wishes to have the view on the whole screen, or back. */
    large: signal(0),
    /** The view has the whole screen. */
    isLarge: signal(false),
    /** What was last put on the clipboard, or why it was not. */
    said: signal(""),
    /** The list of all keys is open. */
    help: signal(false),
    mapOf: signal<MapOf>("error"),
    mapScale: signal<MapScale>("linear"),
    /** What would become of the outputs if some rows were exact; null before it was asked. */
    whatIf: signal<WireWhatIf | null>(null),
    /** What was last explained, and for which row. */
    explained: signal<(WireExplained & { what: string; row: number }) | null>(null),
    /** Which slice of a row the maps show; another row's is its own. */
    slice: signal<{ row: number; axes: readonly number[] | null; index: readonly number[] | null } | null>(null),
    /** Values, or errors, of a row that its map shows alone. */
    mask: signal<Mask | null>(null),
    /** The axis whose slices are shown beside one another under the map; null for none. */
    facetAxis: signal<number | null>(null),
    channelMetric: signal<ChannelMetric>("rmse"),
    /** Something selected that is not a gap row. */
    detail: signal<Detail | null>(null),
    /** Pane sizes in px once dragged; null follows the width of the view. */
    treeWidth: signal<number | null>(null),
    tensorWidth: signal<number | null>(null),
  };
}

export type ViewState = ReturnType<typeof createViewState>;
