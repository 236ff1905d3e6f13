// Values by key, as slices of one typed array.

type Groups = (key: number) => Int32Array;

/** The values of each key from 0 to `keys` - 1, in the order in which they come; keys below 0 are left out. */
export function groupBy(keys: number, keyOf: Int32Array, valueOf: (position: number) => number): Groups {
  let grouped: Groups | null = null;
  return (key) => (grouped ??= grouping(keys, keyOf, valueOf))(key);
}

function grouping(keys: number, keyOf: Int32Array, valueOf: (position: number) => number): Groups {
  const start = new Int32Array(keys + 1);
  for (let position = 0; position < keyOf.length; position++) if (keyOf[position] >= 0) start[keyOf[position] + 1]++;
  for (let key = 0; key < keys; key++) start[key + 1] += start[key];
  const next = start.slice();
  const values = new Int32Array(start[keys]);
  for (let position = 0; position < keyOf.length; position++) {
    const key = keyOf[position];
    if (key >= 0) values[next[key]++] = valueOf(position);
  }
  return (key) => values.subarray(start[key], start[key + 1]);
}
