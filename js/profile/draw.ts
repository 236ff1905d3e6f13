// The picture of the profile on a canvas: module bands, noise and tints of what deserves a look, the total as a line, introduced errors as
// stems, attribution below. What moves (pointer, selection, brush) is drawn over it, so that this is drawn seldom.
import type { NumberColumn } from "../data/columns";
import { type GaugeOf, gaugeOf } from "../data/gauge";
import type { Payload } from "../data/payload";
import { type Band, type Peaks, type Profile, bandText, bandsOf, heightOf, peaksOf } from "../data/profile";
import { ownError } from "../data/rank";
import { type Paint, fontOf } from "../ui/picture";

export interface Frame {
  width: number;
  height: number;
  left: number;
  right: number;
  top: number;
  /** Where the axis is: stems stand on it, attribution hangs below. */
  base: number;
  /** The lower end of the attribution's bars. */
  foot: number;
}

export interface Scene {
  payload: Payload;
  profile: Profile;
  /** A flag for each row that passes the filter. */
  passes: Uint8Array;
}

const BAND = 15;
const ATTRIBUTION = 20;
const LETTER = 6.2;
const NAMED = 6;

/** Rows whose names are written: the worst, and those that deserve a look; of several programs, those that became worse. */
function namedRows(payload: Payload): number[] {
  const change = payload.column("change");
  if (change?.kind === "number") return payload.worst("change", NAMED).filter((row) => change.values[row] >= 2);
  const column = ownError(payload);
  return column ? payload.worst(column.name, NAMED).filter((row, k) => k === 0 || payload.levels[row]) : [];
}

export function frameOf(width: number, height: number, attributed: boolean): Frame {
  const foot = height - BAND;
  const base = attributed ? foot - ATTRIBUTION : foot - 1;
  return { width, height, left: 34, right: 46, top: 6, base, foot };
}

export function plotWidth({ width, left, right }: Frame): number {
  return Math.max(1, Math.round(width - left - right));
}

/** The middle of a place, in px. */
export function xOf(frame: Frame, profile: Profile, place: number): number {
  return frame.left + ((place + 0.5) * plotWidth(frame)) / Math.max(1, profile.rows.length);
}

/** The place at a position, clamped to those that there are. */
export function placeAt(frame: Frame, profile: Profile, x: number): number {
  const count = profile.rows.length;
  return Math.min(count - 1, Math.max(0, Math.floor(((x - frame.left) * count) / plotWidth(frame))));
}

/** The height of a severity, in px from the top. */
export function yOf({ base, top }: Frame, profile: Profile, value: number): number {
  return base - (base - top) * heightOf(value, profile.top);
}

function numbersOf(payload: Payload, name: string): NumberColumn | null {
  const column = payload.column(name);
  return column?.kind === "number" ? column : null;
}

class Picture {
  readonly width: number;
  readonly #top: number;

  constructor(
    readonly context: CanvasRenderingContext2D,
    readonly frame: Frame,
    readonly scene: Scene,
    readonly paint: Paint,
  ) {
    this.width = plotWidth(frame);
    this.#top = scene.profile.top;
  }

  y(value: number): number {
    return yOf(this.frame, this.scene.profile, value);
  }

  text(words: string, x: number, y: number, color: string, align: CanvasTextAlign = "left"): void {
    const { context } = this;
    context.fillStyle = this.paint(color);
    context.textAlign = align;
    context.fillText(words, x, y);
  }

  bands(bands: readonly Band[]): void {
    const { context, frame, scene } = this;
    const count = Math.max(1, scene.profile.rows.length);
    const scale = this.width / count;
    bands.forEach(({ from, end, text }, k) => {
      const x = frame.left + from * scale;
      const wide = (end - from) * scale;
      if (k % 2 === 0) {
        context.fillStyle = this.paint("--etv-bg-soft");
        context.fillRect(x, frame.top, wide, frame.height - frame.top);
      }
      const short = bandText(text, Math.floor((wide - 4) / LETTER));
      if (short) this.text(short, x + wide / 2, frame.foot + 11, "--etv-text-soft", "center");
    });
    context.fillStyle = this.paint("--etv-line-strong");
    for (const place of scene.profile.runs) context.fillRect(frame.left + place * scale, frame.top, 1, frame.foot - frame.top);
  }

  /** `lowest` is the last limit, whose name has to stand apart. */
  axis(lowest: number): void {
    const { context, frame } = this;
    const right = frame.left + this.width;
    context.fillStyle = this.paint("--etv-noise");
    context.fillRect(frame.left, this.y(1), this.width, frame.base - this.y(1));
    for (let value = 1, last = Infinity; value <= this.#top; value *= 10) {
      const y = Math.round(this.y(value)) + 0.5;
      if (last - y < 11) continue;
      last = y;
      context.fillStyle = this.paint("--etv-line");
      context.fillRect(frame.left, y - 0.5, this.width, 1);
      const words = value < 1e4 ? value.toLocaleString("en-US") : `1e${Math.round(Math.log10(value))}`;
      this.text(words, frame.left - 4, y + 3.5, "--etv-text-soft", "right");
    }
    context.fillStyle = this.paint("--etv-line-strong");
    context.fillRect(frame.left, frame.base, this.width, 1);
    if (frame.base - this.y(1) > 11 && lowest > 3) this.text("noise", right + 4, this.y(1) + 10, "--etv-text-soft");
  }

  /** What deserves a look and what is a fault, as tints behind everything; each row has limits of its own. */
  limits([look, fault]: readonly [Float64Array, Float64Array]): void {
    const { context, frame, scene } = this;
    const { rows } = scene.profile;
    const top = frame.top - 2;
    let ends: [number, number] = [NaN, NaN];
    for (let x = 0; x < this.width; x++) {
      const row = rows[Math.min(rows.length - 1, Math.floor((x * rows.length) / this.width))];
      if (!(look[row] <= this.#top)) continue;
      ends = [this.y(look[row]), fault[row] > this.#top ? top : this.y(fault[row])];
      context.fillStyle = this.paint("--etv-look-tint");
      context.fillRect(frame.left + x, ends[1], 1, ends[0] - ends[1]);
      context.fillStyle = this.paint("--etv-fault-tint");
      context.fillRect(frame.left + x, top, 1, ends[1] - top);
    }
    const [lower, upper] = ends;
    if (Number.isNaN(lower)) return;
    const right = frame.left + this.width + 4;
    if (lower - upper >= 9) this.text("look", right, (lower + upper) / 2 + 3.5, "--etv-text-soft");
    this.text(upper > top ? "fault" : "fault ↑", right, upper > top ? Math.max(frame.top + 7, (upper + top) / 2 + 3.5) : frame.top + 3, "--etv-text-soft");
  }

  /** Where the k-th column of peaks is: in the middle of its place where places are wide. */
  x(peaks: Peaks, column: number): number {
    const { frame, scene } = this;
    const count = scene.profile.rows.length;
    return count < this.width ? xOf(frame, scene.profile, peaks.at[column]) : frame.left + column + 0.5;
  }

  total(peaks: Peaks, color = "--etv-control", dash: number[] = []): void {
    const { context } = this;
    context.strokeStyle = this.paint(color);
    context.setLineDash(dash);
    context.lineWidth = 1.25;
    context.beginPath();
    let begun = false;
    peaks.at.forEach((place, column) => {
      if (place < 0) return;
      const [x, y] = [this.x(peaks, column), this.y(peaks.most[column])];
      if (begun) context.lineTo(x, y);
      else context.moveTo(x, y);
      begun = true;
    });
    context.stroke();
    context.setLineDash([]);
    context.lineWidth = 1;
  }

  stems(peaks: Peaks, gauge: GaugeOf): void {
    const { context, frame, scene } = this;
    const { mismatch } = scene.payload;
    const apart = this.width / scene.profile.rows.length;
    const wide = apart > 6 ? 2 : 1;
    peaks.at.forEach((place, column) => {
      if (place < 0) return;
      const row = scene.profile.rows[place];
      const value = peaks.most[column];
      const step = gauge(mismatch[row] ? NaN : value, mismatch[row] === 1, row)?.step ?? 0;
      const [x, y] = [this.x(peaks, column), this.y(value)];
      context.globalAlpha = scene.passes[row] ? 1 : 0.2;
      context.fillStyle = this.paint(`--etv-step-${step}`);
      context.fillRect(x - wide / 2, y, wide, frame.base - y);
      if (mismatch[row]) this.cross(x, frame.top + 3);
      else if (apart > 5 && y < frame.base) {
        context.beginPath();
        context.arc(x, y, 2.5, 0, 7);
        context.fill();
      }
    });
    context.globalAlpha = 1;
  }

  cross(x: number, y: number): void {
    const { context } = this;
    context.strokeStyle = this.paint("--etv-bad");
    context.lineWidth = 1.75;
    context.beginPath();
    for (const side of [-3, 3]) {
      context.moveTo(x - side, y - 3);
      context.lineTo(x + side, y + 3);
    }
    context.stroke();
    context.lineWidth = 1;
  }

  /** Shares hang below the axis; what takes error away is pale. */
  shares(peaks: Peaks): void {
    const { context, frame } = this;
    const room = frame.foot - frame.base - 3;
    const most = peaks.most.reduce((all, share) => Math.max(all, Math.abs(share) || 0), 0);
    if (most === 0) return;
    const wide = Math.min(9, Math.max(1, this.width / this.scene.profile.rows.length - 2));
    context.fillStyle = this.paint("--etv-part");
    peaks.at.forEach((place, column) => {
      if (place < 0) return;
      const high = (room * Math.abs(peaks.most[column])) / most;
      context.globalAlpha = peaks.most[column] < 0 ? 0.35 : 1;
      context.fillRect(this.x(peaks, column) - wide / 2, frame.base + 2, wide, Math.max(0.5, high));
    });
    context.globalAlpha = 1;
    this.text("share", frame.left + this.width + 4, frame.base + 12, "--etv-part");
  }

  /** The names of rows beside their stems, as far as there is room. */
  names(nameOf: (row: number) => string, values: Float64Array): void {
    const { context, frame, scene } = this;
    const taken: [number, number][] = [];
    for (const row of namedRows(scene.payload)) {
      const place = scene.profile.places[row];
      if (place < 0) continue;
      const words = nameOf(row);
      const long = context.measureText(words).width;
      const x = xOf(frame, scene.profile, place);
      const left = x + 5 + long > frame.left + this.width;
      const [from, to] = left ? [x - 5 - long, x] : [x, x + 5 + long];
      if (from < frame.left || taken.some(([start, end]) => from < end + 8 && to > start - 8)) continue;
      taken.push([from, to]);
      const y = Math.max(frame.top + 9, this.y(scene.payload.mismatch[row] ? Infinity : values[row]) + 3);
      // Lines that pass there stay out of the words.
      context.globalAlpha = 0.85;
      context.fillStyle = this.paint("--etv-bg");
      context.fillRect(left ? x - 7 - long : x + 3, y - 9, long + 4, 12);
      context.globalAlpha = 1;
      this.text(words, left ? x - 5 : x + 5, y, "--etv-text", left ? "right" : "left");
    }
  }
}

/** How the totals of the programs beside are told apart. */
const BESIDE = [[], [5, 3], [2, 2]];

/** Room for the name of a band. */
const BAND_WIDTH = 52;

export function draw(context: CanvasRenderingContext2D, frame: Frame, scene: Scene, paint: Paint): void {
  const { payload, profile } = scene;
  context.clearRect(0, 0, frame.width, frame.height);
  context.font = fontOf(10);
  const picture = new Picture(context, frame, scene, paint);
  const columns = Math.min(picture.width, Math.max(1, profile.rows.length));
  const total = numbersOf(payload, "severity");
  const introduced = numbersOf(payload, "introduced_severity");
  picture.bands(bandsOf(profile, Math.max(2, Math.floor(picture.width / BAND_WIDTH))));
  const limited = introduced ?? total;
  const last = profile.rows[profile.rows.length - 1];
  picture.axis(limited?.limits?.[0][last] || Infinity);
  if (limited?.limits) picture.limits(limited.limits);
  if (total) picture.total(peaksOf(profile, total.values, payload.mismatch, columns));
  payload.beside.forEach(({ suffix }, k) => {
    const other = numbersOf(payload, `severity${suffix}`);
    if (other) picture.total(peaksOf(profile, other.values, null, columns), "--etv-beside", BESIDE[k % BESIDE.length]);
  });
  if (introduced) picture.stems(peaksOf(profile, introduced.values, payload.mismatch, columns), gaugeOf(introduced));
  const shares = numbersOf(payload, "attribution");
  if (shares && frame.foot - frame.base > 2) picture.shares(peaksOf(profile, shares.values, null, columns, true));
  const highest = payload.beside.reduce(
    (all, { suffix }) => all.map((value, row) => Math.max(value || 0, payload.number(`severity${suffix}`, row) || 0)),
    limited?.values ?? new Float64Array(payload.rows),
  );
  if (limited) picture.names(payload.nameOf, highest);
}

