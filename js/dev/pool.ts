// Collects columns as the buffers of a message, and texts as codes with a sorted dictionary.
import type { Dtype, Values } from "../state/contract";

const DTYPES: Record<string, Dtype> = {
  Float64Array: "float64",
  Float32Array: "float32",
  Int32Array: "int32",
  Uint32Array: "uint32",
  Uint16Array: "uint16",
  Uint8Array: "uint8",
};

type Column = Float64Array | Float32Array | Int32Array | Uint32Array | Uint16Array | Uint8Array;

export class Pool {
  readonly buffers: DataView[] = [];

  add(array: Column): Values {
    this.buffers.push(new DataView(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength));
    const dtype = DTYPES[array.constructor.name];
    return { buffer: this.buffers.length - 1, dtype, length: array.length };
  }

  floats(values: readonly number[]): Values {
    return this.add(Float64Array.from(values));
  }

  ints(values: readonly number[]): Values {
    return this.add(Int32Array.from(values));
  }

  texts(values: readonly (string | null)[]): { values: Values; dictionary: string[] } {
    const dictionary = [...new Set(values.filter((value) => value !== null))].sort();
    const codes = new Map(dictionary.map((word, code) => [word, code]));
    const coded = values.map((value) => (value === null ? -1 : (codes.get(value) ?? -1)));
    return { values: this.ints(coded), dictionary };
  }
}
