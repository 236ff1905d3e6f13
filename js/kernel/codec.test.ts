// Buffers become numbers exactly as they were sent, aligned or not.
import { expect, test } from "vitest";
import { decodeFloats, decodeInts, decodeNumber, decodeValues } from "./codec";

const doubles = new Float64Array([1.5, NaN, -Infinity]);

test("an aligned buffer is read without a copy", () => {
  const view = new DataView(doubles.buffer);
  const values = decodeValues({ buffer: 0, dtype: "float64", length: 3 }, [view]);
  expect(values).toEqual(doubles);
  expect(values.buffer).toBe(doubles.buffer);
});

test("a buffer that starts at an odd byte is copied and read right", () => {
  const bytes = new Uint8Array(3 * 8 + 3);
  bytes.set(new Uint8Array(doubles.buffer), 3);
  const view = new DataView(bytes.buffer, 3);
  expect(decodeValues({ buffer: 0, dtype: "float64", length: 3 }, [view])).toEqual(doubles);
});

test("small integers and float32 become the arrays the views compute with", () => {
  const shorts = new DataView(new Uint16Array([7, 65535]).buffer);
  expect([...decodeInts({ buffer: 0, dtype: "uint16", length: 2 }, [shorts])]).toEqual([7, 65535]);
  const floats = new DataView(new Float32Array([0.5, 2]).buffer);
  expect(decodeFloats({ buffer: 0, dtype: "float32", length: 2 }, [floats])).toEqual(
    new Float64Array([0.5, 2]),
  );
});

test("a missing or short buffer is an error that says which and why", () => {
  expect(() => decodeValues({ buffer: 2, dtype: "int32", length: 1 }, [])).toThrow(
    "buffer 2 is missing (0 came)",
  );
  const short = new DataView(new ArrayBuffer(8));
  expect(() => decodeValues({ buffer: 0, dtype: "int32", length: 3 }, [short])).toThrow(
    "need 12 bytes, 8 came",
  );
});

test("numbers that JSON cannot hold come as strings", () => {
  expect(decodeNumber("nan")).toBeNaN();
  expect(decodeNumber("inf")).toBe(Infinity);
  expect(decodeNumber("-inf")).toBe(-Infinity);
  expect(decodeNumber(null)).toBeNull();
  expect(decodeNumber(0)).toBe(0);
});
