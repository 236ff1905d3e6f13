// The container of a report: one binary blob, gzip-compressed, base64 in a <script> of the page.
//
//   bytes 0..3      length of the header, uint32 little endian
//   header          JSON, UTF-8, padded with spaces so that the buffers start at a multiple of 8
//   buffers         one after the other, each padded to a multiple of 8
//
// Header: {"version": 1,
//          "payload": {...as the answer to "payload"...}, "payload_buffers": [k, ...],
//          "tensors": {"<row>": {"result": {...as the answer to "tensor"...}, "buffers": [k, ...]}},
//          "missing": {"<row>": "why there is no answer"},
//          "answers": {"<method>:<row>": {"result": {...}, "buffers": [k, ...]}},   (may be absent)
//          "offsets": [byte offset of each buffer, from the start of the buffers],
//          "lengths": [its length in bytes],
//          "even": {"<k>": [first, last, count]},   float64 values that have no bytes: evenly spaced
//          "planes": [k, ...]}   buffers with the first bytes of all words of 8 bytes, then the second ones, and so on
// "answers" holds what was asked of some rows (error_map, scatter, channels) with the parameters
// that a view asks with at first, of some runs (timeline), and the containers of other methods (method). An answer names its buffers 0, 1, ...: the k-th entry of its buffer list.
// etviz/view/pages/container.py writes it.
import { signal } from "@preact/signals";
import type { WireError, WirePayload } from "./contract";
import type { Answer, Source } from "./source";

interface Stored {
  result: unknown;
  buffers: number[];
}

interface Header {
  version: number;
  payload: WirePayload;
  payload_buffers: number[];
  tensors: Record<string, Stored>;
  missing: Record<string, string>;
  answers?: Record<string, Stored>;
  offsets: number[];
  lengths: number[];
  even?: Record<string, [number, number, number]>;
  planes?: number[];
}

export interface Report {
  payload: Answer<WirePayload>;
  /** The answer about a row to a question as it is asked at first; null if the report does not hold it. */
  answer(method: string, row: number): Answer | null;
  /** The report of another method of the program; null if there is none of this name. */
  method(name: string): Report | null;
  /** Why there is no tensor. */
  reason(row: number): string;
}

const LENGTH_BYTES = 4;

/** Read the uncompressed container. */
export function readContainer(bytes: Uint8Array): Report {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = LENGTH_BYTES + view.getUint32(0, true);
  const text = new TextDecoder().decode(bytes.subarray(LENGTH_BYTES, start));
  const header = JSON.parse(text) as Header;
  if (header.version !== 1) throw new Error(`unknown version of the report: ${header.version}`);
  const inPlanes = new Set(header.planes);
  const buffersOf = (ids: number[]): DataView[] =>
    ids.map((id) => {
      const even = header.even?.[id];
      if (even) return new DataView(evenlySpaced(...even).buffer);
      const stored = new Uint8Array(bytes.buffer as ArrayBuffer, bytes.byteOffset + start + header.offsets[id], header.lengths[id]);
      const block = inPlanes.has(id) ? fromPlanes(stored) : stored;
      return new DataView(block.buffer, block.byteOffset, block.byteLength);
    });
  return {
    payload: { result: header.payload, buffers: buffersOf(header.payload_buffers) },
    answer(method, row) {
      const stored = method === "tensor" ? header.tensors[row] : header.answers?.[`${method}:${row}`];
      return stored ? { result: stored.result, buffers: buffersOf(stored.buffers) } : null;
    },
    method(name) {
      const at = header.payload.methods?.indexOf(name) ?? -1;
      const stored = at > 0 ? header.answers?.[`method:${at}`] : undefined;
      const [block] = stored ? buffersOf(stored.buffers) : [];
      return block ? readContainer(new Uint8Array(block.buffer as ArrayBuffer, block.byteOffset, block.byteLength)) : null;
    },
    reason: (row) => header.missing[row] ?? withoutTensor(Object.keys(header.tensors).length),
  };
}

/** The same values, bit for bit, as the kernel left out. */
function evenlySpaced(first: number, last: number, count: number): Float64Array<ArrayBuffer> {
  const step = (last - first) / (count - 1);
  const values = new Float64Array(count);
  for (let k = 0; k < count - 1; k++) values[k] = first + k * step;
  values[count - 1] = last;
  return values;
}

/** Words of 8 bytes from their first bytes, second bytes, and so on. */
function fromPlanes(planes: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  const count = planes.length / 8;
  const [a, b, c, d, e, f, g, h] = Array.from({ length: 8 }, (_, k) => planes.subarray(k * count, (k + 1) * count));
  const halves = new Uint32Array(2 * count);
  for (let k = 0; k < count; k++) {
    halves[2 * k] = a[k] | (b[k] << 8) | (c[k] << 16) | (d[k] << 24);
    halves[2 * k + 1] = e[k] | (f[k] << 8) | (g[k] << 16) | (h[k] << 24);
  }
  return new Uint8Array(halves.buffer);
}

function fromBase64(base64: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  if (native) return native(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let k = 0; k < text.length; k++) bytes[k] = text.charCodeAt(k);
  return bytes;
}

/** base64 of gzip -> the bytes of the container. */
export async function unpack(base64: string): Promise<Uint8Array> {
  const stream = new Blob([fromBase64(base64.trim())]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** The type of the error that there is nothing to try again after. */
export const NOT_IN_REPORT = "NotInReport";

const WITHOUT_TENSORS =
  'This report holds no histograms. A notebook, or a report written with tensors="histograms", shows them.';

function withoutTensor(held: number): string {
  if (held === 0) return WITHOUT_TENSORS;
  return `This report holds the histograms of the ${held.toLocaleString("en-US")} worst rows. A notebook shows those of every row.`;
}

/** What the view calls the answers that only some rows of a report have. */
const NAMES: Record<string, string> = {
  error_map: "error map",
  scatter: "scatter",
  channels: "channels",
  timeline: "timeline",
};

/** A stored answer fits only the question that it was stored for. */
function isStored(method: string, params: Record<string, unknown>): boolean {
  return method !== "error_map" || (params.of === "error" && params.axes === null && params.index === null);
}

function outcomeOf(report: Report, method: string, params: Record<string, unknown>): Answer | WireError {
  if (method === "payload") return report.payload;
  const notHeld = (message: string): WireError => ({ type: NOT_IN_REPORT, message });
  const row = Number(params.row ?? params.run);
  const held = report.answer(method, row);
  if (held && isStored(method, params)) return held;
  if (method === "tensor") return notHeld(report.reason(row));
  const name = NAMES[method];
  if (!name) return notHeld("A report can't compute anything new. A notebook can.");
  if (method === "timeline") return notHeld("This report does not hold the times of this run. A notebook does.");
  if (held) return notHeld(`Not in this report: it holds the ${name} of this row as shown at first.`);
  return notHeld(
    `Not in this report: a report written with tensors="worst" holds the ${name} of its worst rows, ` +
      "a notebook that of every row.",
  );
}

/** Answers the questions of the view from a report instead of a kernel. */
export function reportSource(report: Report): Source {
  let shown = report;
  const own = (report.payload.result.methods ?? [])[0];
  return {
    kernel: false,
    state: signal("ready"),
    holds: (method, row) => shown.answer(method, row) !== null,
    request(method, params, settle) {
      if (method !== "method") return settle(outcomeOf(shown, method, params));
      const chosen = params.method === own ? report : report.method(String(params.method));
      if (!chosen) return settle({ type: NOT_IN_REPORT, message: "This report does not hold that method. A notebook does." });
      shown = chosen;
      settle({ result: {}, buffers: [] });
    },
    onEvent() {},
    dispose() {},
  };
}
