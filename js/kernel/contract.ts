// The messages between the kernel and the view, as they come over the wire (versions 1 and 2).
// Numbers in columns travel as binary buffers; a `Values` names the buffer that holds them.

export type Dtype = "float64" | "float32" | "int32" | "uint32" | "uint16" | "uint8";

export interface Values {
  buffer: number;
  dtype: Dtype;
  length: number;
}

/** JSON holds neither NaN nor infinities: they come as strings. */
export type WireNumber = number | "nan" | "inf" | "-inf" | null;

export type Level = "ok" | "warn" | "bad" | "unknown";
export type Format = "metric" | "int" | "db" | "ms" | "percent" | "text" | "code";
export type Better = "low" | "high" | null;

export interface Fact {
  label: string;
  value: string;
  level: Level;
  row: number | null;
  hint: string;
}

/** What a person has to know first. */
export interface Finding {
  row: number;
  text: string;
  level: Level;
  /** The likely class of bug; "" if none is known. */
  fingerprint: string;
}

export interface Summary {
  level: Level;
  verdict: string;
  facts: Fact[];
  notes: string[];
  finding?: Finding | null;
}

export interface ColumnInfo {
  name: string;
  label: string;
  kind: "number" | "text";
  format: Format;
  better: Better;
  group: string;
  description: string;
  thresholds: [number, number] | null;
  visible: boolean;
}

export interface WireColumn extends ColumnInfo {
  values: Values;
  dictionary?: string[];
  /** From which value each row deserves a look, and from which it is a fault. */
  limits?: [Values, Values];
}

/** Texts of the nodes of a tree: each field holds codes, its plural the words. */
export const TEXT_FIELDS = ["kind", "number", "label", "backend", "op", "shape", "module", "source", "stack"] as const;
export type TextField = (typeof TEXT_FIELDS)[number];

export interface WireTree extends Record<TextField, Values>, Record<`${TextField}s`, string[]> {
  nodes: number;
  depth: Values;
  size: Values;
  instruction: Values;
  latency: Values;
  operators: Values;
  row_node: Values;
}

export type OwnTree = "program" | "modules";
/** The first program's own trees, and the program tree of each program beside it. */
export type TreeName = OwnTree | `beside_${number}`;

/** Another program beside the first one: its tree, with the rows of the first. Its columns end in its number. */
export interface WireBeside {
  label: string;
  tree: WireTree;
}

/** Which rows caused the error of one final output, or of a loss; the shares are the column "attribution". */
export interface Attribution {
  /** Null for a loss, which `about` describes. */
  output: number | null;
  about?: string;
  outputs: string[];
  /** Runtime and reference are the same: what is attributed is their distance to the reference in float64. */
  exact?: boolean;
  sum: WireNumber;
  note: string;
  /** How many rows got their share by which method. */
  methods: Record<string, number>;
}

/** A delegate call whose operators were run one by one. */
export interface WireZoom {
  row: number;
  instruction: number;
  /** Whether the zoomed program gives the fused program's output bit for bit; null: not known. */
  faithful: boolean | null;
  /** Largest difference of an output, where the kernel says it. */
  deviation?: WireNumber;
  message: string;
}

/** What is known of the times before they are asked for. */
export interface TimedRuns {
  runs: number;
  /** The execution whose duration is the median. */
  typical: number;
  note: string;
  /** Values were logged while the times were taken. */
  distorted: boolean;
}

/** The events of one execution, by start, in milliseconds. */
export interface WireTimeline {
  run: number;
  count: number;
  start: Values;
  /** NaN: not known. */
  length: Values;
  /** On which line an event is drawn, from the top. */
  level: Values;
  /** 0 the framework's, 1 a call, 2 an operator inside of a delegate, 3 a kernel inside of a call. */
  kind: Values;
  /** The worst row that it is of; -1 for none. */
  row: Values;
  instruction: Values;
  name: Values;
  names: string[];
  /** The operator that an event inside of a delegate is of, and whether that is "certain" or "likely". */
  operator: Values;
  operators: string[];
  confidence: Values;
  confidences: string[];
  notes: string[];
}

/** Numbers by layer and by call (or position in the cache), row by row; NaN where none is known. */
export interface WireMap {
  prompt: number;
  layers: string[];
  width: number;
  values: Values;
}

/** The tokens of a language model (etviz/view/payload/token_maps.py): a row for each position that has logits. */
export interface WireTokens {
  rows: number;
  /** Prompt and number of the call whose rows are shown; null if none is open. */
  call: [number, number] | null;
  headline: string;
  prompt: Values;
  step: Values;
  position: Values;
  rank: Values;
  kl: Values;
  margin: Values;
  margin_shift: Values;
  margin_noise: Values;
  severity: Values;
  generated: Values;
  agrees: Values;
  at_fault: Values;
  /** 0: noise does not explain the shift of the margin, 1: it does, 2: not known. */
  explained: Values;
  text: Values;
  texts: string[];
  text_reference: Values;
  text_references: string[];
  text_runtime: Values;
  text_runtimes: string[];
  layers: WireMap[];
  cache: WireMap[];
  /** The stages of the port, if a card was attached. */
  card?: PortCard | null;
}

/** The ladder of a port, a row for each stage. */
export interface PortCard {
  verdict: string;
  head: string[];
  rows: string[][];
  /** The first row that differs by more than rounding. */
  first: number | null;
}

export interface WirePayload {
  version: number;
  title: string;
  summary: Summary;
  rows: number;
  compared: number;
  columns: WireColumn[];
  trees: Record<OwnTree, WireTree>;
  /** Programs that are compared with this one, counted from 2. */
  beside?: WireBeside[];
  /** What this program is called among them. */
  label?: string;
  attribution?: Attribution | null;
  /** Pairs of nodes of the program tree: the second one reads a value of the first. */
  edges?: Values;
  /** 1: a value that nobody reads. */
  unused?: Values;
  /** 1: a delegate call that can be zoomed and is not yet. */
  zoomable?: Values;
  zooms?: WireZoom[];
  /** The method that this is of, and all that can be chosen. */
  method?: string;
  methods?: string[];
  /** null: nothing was timed. */
  timeline?: TimedRuns | null;
  /** Of a language model whose calls can be opened. */
  tokens?: WireTokens | null;
  /** How many changes of the Inspection it contains; not in a report. */
  changes?: number;
  /** What can be asked for by `explain`; not in a report. */
  explanations?: string[];
  /** Notes by row. */
  row_notes?: Record<string, string>;
}

/** A table that was asked for: texts. */
export interface WireExplained {
  title: string;
  head: string[];
  rows: string[][];
  text: string;
}

/** The answer to `hello`. */
export interface WireHello {
  protocol: number;
  changes?: number;
}

/** A number of each side; T is how it is spelled. */
export interface Sides<T> {
  reference: T;
  runtime: T;
}

/** One statistic of a tensor. */
export interface Statistic<T = number | null> extends Sides<T> {
  name: string;
  error: T;
}

/** One of the elements with the largest error. */
export interface WorstElement<T = number | null> extends Sides<T> {
  index: number[];
}

export interface Nonfinite {
  classes: string[];
  counts: number[][];
}

/** A likely class of bug, and why. */
export interface Fingerprint {
  name: string;
  /** 0 to 1. */
  score: number;
  evidence: string;
}

export interface WireQuantization {
  scale: WireNumber;
  zero_point: WireNumber;
  qmin: WireNumber;
  qmax: WireNumber;
  low: WireNumber;
  high: WireNumber;
  float: Values | null;
  error_steps: WireNumber;
  saturated: WireNumber;
}

export interface WireTensor {
  row: number;
  elements: number;
  reference_missing: string | null;
  label?: string;
  /** The same operator's values in the programs beside, over the same bins; `beyond` are in none. */
  beside?: { label: string; runtime: Values; beyond: number }[];
  edges: Values;
  reference: Values | null;
  runtime: Values;
  error_edges: Values | null;
  error: Values | null;
  nonfinite: Nonfinite | null;
  statistics: Statistic<WireNumber>[];
  /** null: not in this report. */
  worst: WorstElement<WireNumber>[] | null;
  shape?: number[];
  fingerprints?: Fingerprint[];
  quantization?: WireQuantization | null;
}

export type MapOf = "error" | "reference" | "runtime";

export interface WireErrorMap {
  shape: number[];
  /** The axes that run down and across. */
  axes: number[];
  index: number[];
  height: number;
  width: number;
  values: Values;
  /** What is not finite in each cell: 0 nothing, 1 Inf, 2 −Inf, 3 NaN; null or not sent if all is finite. */
  kinds?: Values | null;
  /** Elements in a cell, down and across. */
  block: number[];
  low: WireNumber;
  high: WireNumber;
}

export interface WireScatter {
  x_edges: Values;
  y_edges: Values;
  counts: Values;
  elements: number;
}

export interface WireChannels {
  axis: number;
  size: number;
  rmse: Values;
  max_abs: Values;
  share: Values;
}

/** What would become of the outputs if some rows were exact. */
export interface WireWhatIf {
  rows: number[];
  outputs: {
    name: string;
    /** RMSE against the reference, as it ran and as it would have been. */
    before: WireNumber;
    after: WireNumber;
    /** Index of the largest score in reference, runtime and what would have been; null for other outputs. */
    top1: [number, number, number] | null;
  }[];
}

export interface WireError {
  type: string;
  message: string;
}

export interface Progress {
  label: string;
  done: number;
  total: number;
}

/** One answer or event of the kernel. */
export interface WireMessage extends Partial<Progress> {
  id?: number;
  result?: unknown;
  error?: WireError;
  event?: "changed" | "progress";
}
