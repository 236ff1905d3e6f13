// The error along the program: compared rows in the order in which they run, the modules that they belong to, and
// what is drawn of them in so many columns of pixels.
import { numberAt } from "./columns";
import type { Payload } from "./payload";

/** Consecutive places of one module. */
export interface Band {
  from: number;
  /** The place after the last one. */
  end: number;
  text: string;
}

export interface Profile {
  /** Compared rows whose values are read, in program order; operators inside of a delegate stand before the delegate's own values. */
  rows: Int32Array;
  /** The place of each row; -1 for a row that is in no place. */
  places: Int32Array;
  /** Places at which another run begins. */
  runs: number[];
  /** The module of each place, as a number of `paths`; -1 where none is known, -2 for a delegate that is of several. */
  modules: Int32Array;
  paths: readonly string[];
  /** The bands in as much detail as so many give, see `bandsOf`. */
  bands: Map<number, Band[]>;
  /** The upper end of the axis. */
  top: number;
}

const UNKNOWN = -1;
const SEVERAL = -2;

/** Below it, no error is told from another: the lower end of the axis. */
export const LEAST = 0.1;

function numbers(payload: Payload, name: string): Float64Array {
  const column = payload.column(name);
  return column?.kind === "number" ? column.values : new Float64Array(payload.rows).fill(NaN);
}

/** `shown` are the rows of the runs that are looked at; `folded` if of each value only one run is. */
export function profileOf(payload: Payload, shown: Iterable<number> | null = null, folded = false): Profile {
  const { compared, unused, zooms } = payload;
  const [block, instruction, output] = ["run", "instruction", "output"].map((name) =>
    numbers(payload, name),
  );
  const before = (a: number, b: number): number =>
    (folded ? 0 : (block[a] || 0) - (block[b] || 0)) ||
    (instruction[a] || 0) - (instruction[b] || 0) ||
    Number(zooms.isInner(b)) - Number(zooms.isInner(a)) ||
    (zooms.isInner(a) ? 0 : (output[a] || 0) - (output[b] || 0)) ||
    a - b;
  const all = shown ? Int32Array.from(shown) : new Int32Array(compared).map((_, row) => row);
  const rows = all.filter((row) => row < compared && unused[row] === 0);
  if (rows.some((row, k) => k > 0 && before(rows[k - 1], row) > 0)) rows.sort(before);
  const places = new Int32Array(payload.rows).fill(-1);
  const runs: number[] = [];
  rows.forEach((row, place) => {
    places[row] = place;
    if (!folded && place > 0 && !Object.is(block[row], block[rows[place - 1]])) runs.push(place);
  });
  const column = payload.column("module");
  const modules = new Int32Array(rows.length).fill(UNKNOWN);
  const paths = column?.kind === "text" ? column.dictionary : [];
  if (column?.kind === "text") {
    rows.forEach((row, place) => {
      const begins = place === 0 || !Object.is(instruction[row], instruction[rows[place - 1]]);
      const several = column.codes[row] < 0 && begins && payload.text("kind", row) === "delegate";
      modules[place] = several ? SEVERAL : column.codes[row];
    });
  }
  return { rows, places, runs, modules, paths, bands: new Map(), top: topOf(payload) };
}

function bandsAt({ modules }: Profile, levels: readonly (readonly string[])[], depth: number): Band[] {
  const bands: Band[] = [];
  const texts = levels.map((path) => path.slice(0, depth).join("."));
  let last: Band | null = null;
  let held = UNKNOWN;
  for (let place = 0; place < modules.length; place++) {
    const code = modules[place];
    const text = texts[code] ?? "";
    if (last && (code === UNKNOWN || code === held || text === last.text)) last.end = place + 1;
    else bands.push((last = { from: place, end: place + 1, text }));
    if (code !== UNKNOWN) held = code;
  }
  return bands;
}

/** The modules in as much detail as `most` bands give; what is in no known module belongs to the one before it. */
export function bandsOf(profile: Profile, most: number): Band[] {
  const known = profile.bands.get(most);
  if (known) return known;
  const levels = profile.paths.map((path) => path.split("."));
  const deepest = levels.reduce((all, path) => Math.max(all, path.length), 1);
  let bands = bandsAt(profile, levels, 1);
  for (let depth = 2; depth <= deepest; depth++) {
    const finer = bandsAt(profile, levels, depth);
    if (finer.length > most) break;
    bands = finer;
  }
  if (bands.length > 4 * most) bands = [];
  profile.bands.set(most, bands);
  return bands;
}

/** Letters of a path's end that tell which module it is. */
const LEGIBLE = 8;

/** The name of a band in so many letters: as much of the end of its path as there is room for, or nothing. */
export function bandText(path: string, letters: number): string {
  if (path.length <= letters) return path;
  const dots = [...path.matchAll(/\./g)].map(({ index }) => index + 1);
  const whole = dots.map((at) => path.slice(at)).find((end) => end.length <= letters && !/^\d+$/.test(end));
  return whole ?? (letters >= LEGIBLE ? `…${path.slice(1 - letters)}` : "");
}

/** The largest value of the places in each of `columns` equal parts, and the place that has it (-1 for none). */
export interface Peaks {
  most: Float64Array;
  at: Int32Array;
}

/** A non-finite mismatch is larger than every number. `signed`: by size, with the sign kept. */
export function peaksOf(
  { rows }: Profile,
  values: Float64Array,
  mismatch: Uint8Array | null,
  columns: number,
  signed = false,
): Peaks {
  const most = new Float64Array(columns).fill(NaN);
  const at = new Int32Array(columns).fill(-1);
  const scale = columns / Math.max(1, rows.length);
  for (let place = 0; place < rows.length; place++) {
    const row = rows[place];
    const value = mismatch?.[row] ? Infinity : values[row];
    if (Number.isNaN(value)) continue;
    const column = Math.min(columns - 1, Math.floor((place + 0.5) * scale));
    const larger = signed ? Math.abs(value) > Math.abs(most[column]) : value > most[column];
    if (at[column] >= 0 && !larger) continue;
    most[column] = value;
    at[column] = place;
  }
  return { most, at };
}

/** Where a severity is on the axis from `LEAST` (0) to `top` (1). */
export function heightOf(value: number, top: number): number {
  if (!(value > LEAST)) return 0;
  return Math.min(1, Math.log10(value / LEAST) / Math.log10(top / LEAST));
}

/** Limits beyond so many times every value would press all else together: they are off the axis. */
const NEAR_LIMIT = 30;

/** The upper end of the axis: a little more than every value, and than the limits of most rows that are not far above. */
function topOf(payload: Payload): number {
  let top = 10;
  const limits: number[] = [];
  const hold = (values: Float64Array): void => {
    for (const value of values) if (Number.isFinite(value) && value > top) top = value;
  };
  for (const name of ["severity", "introduced_severity", ...payload.beside.map(({ suffix }) => `severity${suffix}`)]) {
    const column = payload.column(name);
    if (column?.kind !== "number") continue;
    hold(column.values);
    if (column.limits) limits.push(...column.limits.map(middleOf));
  }
  const reach = NEAR_LIMIT * top;
  hold(Float64Array.from(limits.filter((limit) => limit <= reach)));
  return 2 * top;
}

const ENOUGH = 1000;

/** About the median of the numbers that are known; NaN if none is. */
function middleOf(values: Float64Array): number {
  const each = Math.ceil(values.length / ENOUGH);
  const some = Float64Array.from({ length: Math.ceil(values.length / each) || 0 }, (_, k) => values[k * each]);
  const known = some.filter((value) => !Number.isNaN(value)).sort();
  return known[known.length >> 1] ?? NaN;
}

/** A term of the filter's language for the instructions of places `from` to `to`. */
export function spanQuery(payload: Payload, profile: Profile, from: number, to: number): string {
  const at = (place: number): number => numberAt(payload.column("instruction"), profile.rows[place]);
  const run = (place: number): number => numberAt(payload.column("run"), profile.rows[place]);
  const [low, high] = [at(from), at(to)];
  const span = Object.is(run(from), run(to)) ? `at:${Math.min(low, high)}..${Math.max(low, high)}` : "";
  if (profile.runs.length === 0) return span;
  return `${span} run:${run(from)}..${run(to)}`.trim();
}
