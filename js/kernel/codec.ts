// Binary buffers of a message -> typed arrays. A buffer that is not aligned is copied.
import type { Dtype, Values, WireNumber } from "./contract";

const constructors = {
  float64: Float64Array,
  float32: Float32Array,
  int32: Int32Array,
  uint32: Uint32Array,
  uint16: Uint16Array,
  uint8: Uint8Array,
};

export type NumberArray = InstanceType<(typeof constructors)[Dtype]>;

/** The array that `values` names; an error if the buffer is missing or too short. */
export function decodeValues(values: Values, buffers: readonly DataView[]): NumberArray {
  const ArrayType = constructors[values.dtype];
  const view = buffers[values.buffer];
  if (!ArrayType) throw new Error(`buffer ${values.buffer}: unknown dtype "${values.dtype}"`);
  if (!view) throw new Error(`buffer ${values.buffer} is missing (${buffers.length} came)`);
  const bytes = values.length * ArrayType.BYTES_PER_ELEMENT;
  if (view.byteLength < bytes) {
    throw new Error(
      `buffer ${values.buffer}: ${values.length} ${values.dtype} need ${bytes} bytes, ` +
        `${view.byteLength} came`,
    );
  }
  if (view.byteOffset % ArrayType.BYTES_PER_ELEMENT === 0) {
    return new ArrayType(view.buffer as ArrayBuffer, view.byteOffset, values.length);
  }
  const start = view.byteOffset;
  return new ArrayType(view.buffer.slice(start, start + bytes) as ArrayBuffer);
}

/** The values as float64, whatever they were sent as. */
export function decodeFloats(values: Values, buffers: readonly DataView[]): Float64Array {
  const array = decodeValues(values, buffers);
  return array instanceof Float64Array ? array : Float64Array.from(array);
}

/** The values as int32 (codes, sizes, ids), whatever they were sent as. */
export function decodeInts(values: Values, buffers: readonly DataView[]): Int32Array {
  const array = decodeValues(values, buffers);
  return array instanceof Int32Array ? array : Int32Array.from(array);
}

/** A JSON number that may be spelled "nan", "inf" or "-inf"; null stays null. */
export function decodeNumber(value: WireNumber): number | null {
  if (value === null || typeof value === "number") return value;
  if (value === "nan") return NaN;
  return value === "inf" ? Infinity : -Infinity;
}
