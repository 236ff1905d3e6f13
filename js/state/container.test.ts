// A report's data can be read back: written here as container.ts describes it.
import { expect, test } from "vitest";
import { samplePayload } from "../dev/sample";
import { sampleTensor } from "../dev/sampleTensor";
import { readContainer, unpack } from "./container";
import { decodePayload } from "./payload";
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
  const buffers = [...payload.buffers, ...tensor.buffers];
  const offsets: number[] = [];
  let end = 0;
  for (const buffer of buffers) {
    offsets.push(end);
    end += padded(buffer.byteLength);
  }
  const header = {
    version: 1,
    payload: payload.result,
    payload_buffers: payload.buffers.map((_, k) => k),
    tensors: {
      "3": { result: tensor.result, buffers: tensor.buffers.map((_, k) => payload.buffers.length + k) },
    },
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

test("another version is refused", () => {
  const text = new TextEncoder().encode('{"version": 2}  ');
  const bytes = new Uint8Array(4 + text.length);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 4);
  expect(() => readContainer(bytes)).toThrow("unknown version of the report: 2");
});
