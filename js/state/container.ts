// The container of a report: one binary blob, gzip-compressed, base64 in a <script> of the page.
//
//   bytes 0..3      length of the header, uint32 little endian
//   header          JSON, UTF-8, padded with spaces so that the buffers start at a multiple of 8
//   buffers         one after the other, each padded to a multiple of 8
//
// Header: {"version": 1,
//          "payload": {...as the answer to "payload"...}, "payload_buffers": [k, ...],
//          "tensors": {"<row>": {"result": {...as the answer to "tensor"...}, "buffers": [k, ...]}},
//          "missing": {"<row>": "why there is no such answer"},
//          "answers": {"<method>:<row>": {"result": {...}, "buffers": [k, ...]}},   (may be absent)
//          "offsets": [byte offset of each buffer, from the start of the buffers],
//          "lengths": [its length in bytes]}
// "answers" holds what was asked of some rows (error_map, scatter, channels) with the parameters
// that a view asks with at first. An answer names its buffers 0, 1, ...: the k-th entry of its buffer list.
// etviz/view/container.py writes it.
import type { WirePayload, WireTensor } from "./contract";
import type { Answer } from "./rpc";

interface Header {
  version: number;
  payload: WirePayload;
  payload_buffers: number[];
  tensors: Record<string, { result: WireTensor; buffers: number[] }>;
  missing: Record<string, string>;
  answers?: Record<string, { result: unknown; buffers: number[] }>;
  offsets: number[];
  lengths: number[];
}

export interface Report {
  payload: { result: WirePayload; buffers: DataView[] };
  tensor(row: number): { result: WireTensor; buffers: DataView[] } | null;
  /** The answer about a row to another question, as it is asked at first. */
  answer(method: string, row: number): Answer | null;
  /** Why there is no tensor; null if the report was written without. */
  reason(row: number): string | null;
}

const LENGTH_BYTES = 4;

/** Read the uncompressed container. */
export function readContainer(bytes: Uint8Array): Report {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = LENGTH_BYTES + view.getUint32(0, true);
  const text = new TextDecoder().decode(bytes.subarray(LENGTH_BYTES, start));
  const header = JSON.parse(text) as Header;
  if (header.version !== 1) throw new Error(`unknown version of the report: ${header.version}`);
  const buffersOf = (ids: number[]): DataView[] =>
    ids.map(
      (id) => new DataView(bytes.buffer, bytes.byteOffset + start + header.offsets[id], header.lengths[id]),
    );
  return {
    payload: { result: header.payload, buffers: buffersOf(header.payload_buffers) },
    tensor(row) {
      const held = header.tensors[String(row)];
      return held ? { result: held.result, buffers: buffersOf(held.buffers) } : null;
    },
    answer(method, row) {
      const held = header.answers?.[`${method}:${row}`];
      return held ? { result: held.result, buffers: buffersOf(held.buffers) } : null;
    },
    reason: (row) => header.missing[String(row)] ?? null,
  };
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
