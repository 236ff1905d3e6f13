// A report's data can be read back: written here as container.ts describes it.
import { expect, test } from "vitest";
import { samplePayload } from "../dev/sample";
import { sampleScatter } from "../dev/sampleMaps";
import { sampleTensor } from "../dev/sampleTensor";
import { readContainer, unpack } from "./container";
import { decodePayload } from "./payload";
import { scatterQuestion } from "./maps";
import type { Answer } from "./rpc";
import { isError } from "./rpc";
import { staticSource } from "./staticSource";
import { decodeTensor } from "./tensor";

function padded(size: number): number {
  return Math.ceil(size / 8) * 8;
}

function pack(): Uint8Array {
  const payload = samplePayload({ layers: 2 });
  const tensor = sampleTensor(3);
  const scatter = sampleScatter();
  const buffers = [...payload.buffers, ...tensor.buffers, ...scatter.buffers];
  const listed = (from: number, some: DataView[]): number[] => some.map((_, k) => from + k);
  const before = payload.buffers.length + tensor.buffers.length;
  const offsets: number[] = [];
  let end = 0;
  for (const buffer of buffers) {
    offsets.push(end);
    end += padded(buffer.byteLength);
  }
  const header = {
    version: 1,
    payload: payload.result,
    payload_buffers: listed(0, payload.buffers),
    tensors: { "3": { result: tensor.result, buffers: listed(payload.buffers.length, tensor.buffers) } },
    answers: { "scatter:3": { result: scatter.result, buffers: listed(before, scatter.buffers) } },
    missing: { "6": "row 6 has no reference tensor" },
    offsets,
    lengths: buffers.map((buffer) => buffer.byteLength),
  };
  let text = new TextEncoder().encode(JSON.stringify(header));
  const room = padded(text.length + 4) - 4;
  text = new TextEncoder().encode(JSON.stringify(header) + " ".repeat(room - text.length));
  const bytes = new Uint8Array(4 + text.length + end);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 4);
  buffers.forEach((buffer, k) => {
    bytes.set(
      new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength),
      4 + text.length + offsets[k],
    );
  });
  return bytes;
}

async function compressed(bytes: Uint8Array): Promise<string> {
  const stream = new Blob([bytes as BlobPart]).stream().pipeThrough(new CompressionStream("gzip"));
  const packed = new Uint8Array(await new Response(stream).arrayBuffer());
  return btoa(Array.from(packed, (byte) => String.fromCharCode(byte)).join(""));
}

test("payload and tensors come back as they were", async () => {
  const bytes = pack();
  expect(await unpack(await compressed(bytes))).toEqual(bytes);
  const report = readContainer(bytes);
  const payload = decodePayload(report.payload.result, report.payload.buffers);
  expect(payload.rows).toBe(19);
  const held = report.tensor(3);
  expect(held && decodeTensor(held.result, held.buffers).row).toBe(3);
  expect(report.tensor(4)).toBeNull();
});

test("a report answers like a kernel, and says what it does not hold", () => {
  const source = staticSource(readContainer(pack()));
  const outcomes: unknown[] = [];
  source.request("payload", {}, (outcome) => outcomes.push(isError(outcome)));
  source.request("tensor", { row: 3 }, (outcome) => outcomes.push((outcome as Answer).result));
  source.request("tensor", { row: 5 }, (outcome) => outcomes.push(isError(outcome) && outcome.message));
  source.request("tensor", { row: 6 }, (outcome) => outcomes.push(isError(outcome) && outcome.message));
  expect(outcomes[0]).toBe(false);
  expect(outcomes[1]).toMatchObject({ row: 3 });
  expect(outcomes[2]).toContain("holds no histograms");
  expect(outcomes[3]).toBe("row 6 has no reference tensor");
});

test("what some rows hold is answered as it was asked at first; nothing new is computed", () => {
  const source = staticSource(readContainer(pack()));
  const said = (method: string, params: object): unknown => {
    let found: unknown;
    source.request(method, params, (outcome) => {
      found = isError(outcome) ? outcome.message : scatterQuestion(3).decode(outcome).elements;
    });
    return found;
  };
  expect(source.kernel).toBe(false);
  expect(said("scatter", { row: 3, bins: 64 })).toBe(sampleScatter().result.elements);
  expect(said("scatter", { row: 4, bins: 64 })).toContain("Not in this report");
  expect(said("error_map", { row: 3, of: "error", axes: null, index: null })).toContain("Not in this report");
  expect(said("zoom", { row: 3 })).toContain("can't compute anything new");
});

test("another version is refused", () => {
  const text = new TextEncoder().encode('{"version": 2}  ');
  const bytes = new Uint8Array(4 + text.length);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 4);
  expect(() => readContainer(bytes)).toThrow("unknown version of the report: 2");
});
