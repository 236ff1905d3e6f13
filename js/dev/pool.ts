// Collects columns as the buffers of a message, and texts as codes with a sorted dictionary.
import type { NumberArray } from "../kernel/codec";
import type { Dtype, Values } from "../kernel/contract";

export class Pool {
  readonly buffers: DataView[] = [];

  add(array: NumberArray): Values {
    this.buffers.push(new DataView(array.buffer as ArrayBuffer, array.byteOffset, array.byteLength));
    const dtype = array.constructor.name.replace("Array", "").toLowerCase() as Dtype;
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
