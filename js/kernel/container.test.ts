// A report's data can be read back: written here as container.ts describes it.
import { expect, test } from "vitest";
import { decodePayload } from "../data/payload";
import { scatterQuestion } from "../data/tensor";
import { samplePayload } from "../dev/samplePayload";
import { sampleScatter, sampleTensor } from "../dev/sampleTensor";
import { readContainer, reportSource, unpack } from "./container";
import type { WirePayload } from "./contract";
import { type Answer, type Source, isError } from "./source";

function padded(size: number): number {
  return Math.ceil(size / 8) * 8;
}

function inPlanes({ buffer, byteOffset, byteLength }: DataView): DataView {
  const words = new Uint8Array(buffer, byteOffset, byteLength);
  return new DataView(words.map((_, at) => words[8 * (at % (byteLength / 8)) + Math.floor((8 * at) / byteLength)]).buffer);
}

function pack(
  payload = samplePayload({ layers: 2 }),
  more: Record<string, Answer> = {},
  tensors: Record<string, Answer> = { "3": sampleTensor(3) },
): Uint8Array {
  const held: DataView[] = [];
  const hold = (buffers: readonly DataView[]): number[] => buffers.map((buffer) => held.push(buffer) - 1);
  const stored = ({ result, buffers }: Answer) => ({ result, buffers: hold(buffers) });
  const answers = {
    version: 1,
    payload: payload.result,
    payload_buffers: hold(payload.buffers),
    tensors: Object.fromEntries(Object.entries(tensors).map(([row, one]) => [row, stored(one)])),
    answers: { "scatter:3": stored(sampleScatter()), ...Object.fromEntries(Object.entries(more).map(([name, one]) => [name, stored(one)])) },
    missing: { "6": "row 6 has no reference tensor" },
  };
  let end = 0;
  const offsets = held.map(({ byteLength }) => (end += padded(byteLength)) - padded(byteLength));
  const lengths = held.map(({ byteLength }) => byteLength);
  const planes = lengths.flatMap((length, k) => (length % 8 === 0 && k % 2 === 0 ? [k] : []));
  for (const k of planes) held[k] = inPlanes(held[k]);
  const header = { ...answers, offsets, lengths, planes };
  const text = new TextEncoder().encode(JSON.stringify(header));
  const start = padded(4 + text.length);
  const bytes = new Uint8Array(start + end).fill(0x20, 4, start);
  new DataView(bytes.buffer).setUint32(0, start - 4, true);
  bytes.set(text, 4);
  held.forEach(({ buffer, byteOffset, byteLength }, k) =>
    bytes.set(new Uint8Array(buffer, byteOffset, byteLength), start + offsets[k]),
  );
  return bytes;
}

/** The result of a question, or the message of the error. */
function ask(source: Source, method: string, params: Record<string, unknown>): unknown {
  let said: unknown;
  source.request(method, params, (outcome) => (said = isError(outcome) ? outcome.message : outcome.result));
  return said;
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
  expect(decodePayload(report.payload).rows).toBe(19);
  expect(report.answer("tensor", 3)).toEqual(sampleTensor(3));
  expect(report.answer("tensor", 4)).toBeNull();
});

test("evenly spaced values come as their ends", () => {
  const bytes = pack();
  const start = 4 + new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, start)));
  const [edges] = header.tensors["3"].buffers;
  const text = new TextEncoder().encode(JSON.stringify({ ...header, even: { [edges]: [-1, 0.2, 4] } }));
  const again = new Uint8Array(4 + padded(text.length) + bytes.length - start).fill(0x20);
  new DataView(again.buffer).setUint32(0, padded(text.length), true);
  again.set(text, 4);
  again.set(bytes.subarray(start), 4 + padded(text.length));
  const [values, other] = (readContainer(again).answer("tensor", 3) as Answer).buffers;
  const step = (0.2 - -1) / 3;
  expect([0, 1, 2, 3].map((k) => values.getFloat64(8 * k, true))).toEqual([-1, -1 + step, -1 + 2 * step, 0.2]);
  expect(other).toEqual(sampleTensor(3).buffers[1]);
});

test("a report of several methods answers for the one that was chosen", () => {
  const methods = ["a", "b", "c"];
  const of = (method: string, layers: number): Answer<WirePayload> => {
    const { result, buffers } = samplePayload({ layers });
    return { result: { ...result, method, methods }, buffers };
  };
  const other = pack(of("b", 1));
  const held = { result: { method: "b" }, buffers: [new DataView(other.buffer)] };
  const source = reportSource(readContainer(pack(of("a", 2), { "method:1": held })));
  const rows = (): number => (ask(source, "payload", {}) as WirePayload).rows;
  const first = rows();
  expect(ask(source, "method", { method: "b" })).toEqual({});
  expect(rows()).toBeLessThan(first);
  source.request("payload", {}, (outcome) => {
    if (isError(outcome)) throw new Error(outcome.message);
    expect(decodePayload(outcome as Answer<WirePayload>).method).toBe("b");
  });
  expect(ask(source, "method", { method: "a" })).toEqual({});
  expect(rows()).toBe(first);
  expect(ask(source, "method", { method: "c" })).toContain("does not hold that method");
  expect(rows()).toBe(first);
});

test("a report answers like a kernel, and says what it does not hold", () => {
  const source = reportSource(readContainer(pack()));
  expect(source.kernel).toBe(false);
  expect(ask(source, "payload", {})).toMatchObject({ rows: 19 });
  expect(ask(source, "tensor", { row: 3 })).toMatchObject({ row: 3 });
  expect(ask(source, "tensor", { row: 5 })).toContain("holds the histograms of the 1 worst rows");
  expect(ask(reportSource(readContainer(pack(undefined, {}, {}))), "tensor", { row: 5 })).toContain("holds no histograms");
  expect(ask(source, "tensor", { row: 6 })).toBe("row 6 has no reference tensor");
});

test("what some rows hold is answered as it was asked at first; nothing new is computed", () => {
  const report = readContainer(pack());
  const source = reportSource(report);
  const { elements } = sampleScatter().result;
  expect(ask(source, "scatter", { row: 3, bins: 64 })).toMatchObject({ elements });
  expect(scatterQuestion(3).decode(report.answer("scatter", 3) as Answer).elements).toBe(elements);
  expect(ask(source, "scatter", { row: 4, bins: 64 })).toContain("Not in this report");
  expect([3, 4].map((row) => source.holds?.("scatter", row))).toEqual([true, false]);
  expect(ask(source, "error_map", { row: 3, of: "error", axes: null, index: null })).toContain(
    "Not in this report",
  );
  expect(ask(source, "zoom", { row: 3 })).toContain("can't compute anything new");
});

test("another version is refused", () => {
  const text = new TextEncoder().encode('{"version": 2}  ');
  const bytes = new Uint8Array(4 + text.length);
  new DataView(bytes.buffer).setUint32(0, text.length, true);
  bytes.set(text, 4);
  expect(() => readContainer(bytes)).toThrow("unknown version of the report: 2");
});
