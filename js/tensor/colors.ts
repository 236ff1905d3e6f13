// Colours of the maps. Only the hue is fixed: the size of a value is the opacity over the page's own
// background, so that a map fits a light and a dark page. Blue and orange stay apart for every common
// kind of colour blindness. No DOM.

export type Rgb = readonly [number, number, number];

export const BELOW: Rgb = [38, 120, 212];
export const ABOVE: Rgb = [226, 110, 8];
export const ERROR: Rgb = [176, 64, 196];
export const DENSITY: Rgb = [38, 120, 212];
/** Cells with an element that is NaN or infinite: a grey that no scale has. */
export const NONFINITE: Rgb = [128, 128, 128];

const FULL = 255;
/** A logarithmic scale spans this many decades below the largest value. */
const DECADES = 4;
/** What is there at all can be seen. */
const FAINTEST = 0.14;

/** The largest size that the scale of `low` to `high` must hold. */
export function extent(low: number, high: number): number {
  const most = Math.max(Math.abs(low), Math.abs(high));
  return Number.isFinite(most) ? most : 0;
}

/** Three standard deviations of the finite values around zero; 0 if there are none. */
export function spread(values: Float64Array): number {
  let sum = 0;
  let count = 0;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    sum += value * value;
    count++;
  }
  return count > 0 ? 3 * Math.sqrt(sum / count) : 0;
}

/** 0 for nothing to 1 for the largest. */
export function strength(size: number, most: number, log: boolean): number {
  if (size <= 0 || most <= 0) return 0;
  const share = Math.min(1, size / most);
  return log ? Math.max(0, 1 + Math.log10(share) / DECADES) : share;
}

function put(pixels: Uint8ClampedArray, cell: number, color: Rgb, opacity: number): void {
  pixels.set(color, 4 * cell);
  pixels[4 * cell + 3] = FULL * opacity;
}

/** Pixels of signed values: blue below zero, `positive` above. */
export function paintSigned(
  values: Float64Array,
  most: number,
  log: boolean,
  positive: Rgb = ABOVE,
  shown: Uint8Array | null = null,
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(4 * values.length);
  values.forEach((value, cell) => {
    if (shown && !shown[cell]) return;
    if (Number.isFinite(value)) {
      put(pixels, cell, value < 0 ? BELOW : positive, strength(Math.abs(value), most, log));
    } else put(pixels, cell, NONFINITE, 1);
  });
  return pixels;
}

/** Pixels of counts on a logarithmic scale; a count of one can be seen. The first row is at the bottom. */
export function paintCounts(
  counts: Float64Array,
  width: number,
  most: number,
): Uint8ClampedArray<ArrayBuffer> {
  const pixels = new Uint8ClampedArray(4 * counts.length);
  const height = counts.length / width;
  counts.forEach((count, cell) => {
    if (count <= 0) return;
    const share = most > 1 ? Math.log(count) / Math.log(most) : 1;
    const flipped = (height - 1 - Math.floor(cell / width)) * width + (cell % width);
    put(pixels, flipped, DENSITY, FAINTEST + (1 - FAINTEST) * share);
  });
  return pixels;
}

function css([red, green, blue]: Rgb, opacity: number): string {
  return `rgb(${red} ${green} ${blue} / ${opacity})`;
}

/** The scale as a CSS gradient, from the most negative to the most positive. */
export function gradient(signed: boolean, positive: Rgb = ABOVE): string {
  const above = `${css(positive, 0)}, ${css(positive, 1)}`;
  return `linear-gradient(to right, ${signed ? `${css(BELOW, 1)}, ${css(BELOW, 0)}, ` : ""}${above})`;
}
