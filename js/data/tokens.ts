// The tokens of a language model: what is known of each, what a reader is told of it, and maps by layer and call.
import { decodeFloats, decodeInts } from "../kernel/codec";
import type { PortCard, WireMap, WireTokens } from "../kernel/contract";
import { formatMetric } from "./format";

/** A flip is explained by noise, is not, or that is not known; "" where the best tokens agree. */
export type Flip = "" | "explained" | "fault" | "unknown";

export interface TokenMap {
  prompt: number;
  layers: readonly string[];
  width: number;
  values: Float64Array;
}

export interface Tokens {
  rows: number;
  call: readonly [number, number] | null;
  headline: string;
  prompt: Int32Array;
  step: Int32Array;
  position: Int32Array;
  kl: Float64Array;
  severity: Float64Array;
  generated: Int32Array;
  atFault: Int32Array;
  text(row: number): string;
  flip(row: number): Flip;
  /** 0 to 1: where its KL divergence is between the least and the largest, by orders of magnitude. */
  heat(row: number): number;
  /** The least and the largest KL divergence above 0; null if every one is 0. */
  range: readonly [number, number] | null;
  /** Everything about a row in words. */
  about(row: number): string;
  /** The row to look at first: the first fault, else the first flip, else the largest KL divergence. */
  first: number;
  /** The last row of a call, -1 if it has none. */
  rowOf(prompt: number, step: number): number;
  prompts: readonly number[];
  layers: readonly TokenMap[];
  cache: readonly TokenMap[];
  card: PortCard | null;
}

const HIDDEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

/** A text of a tokenizer in which nothing is hidden: control characters and marks of direction are shown by number. */
export function visibleText(text: string): string {
  return text.replace(HIDDEN, (hidden) => {
    if (hidden === "\n") return "⏎";
    return `<U+${(hidden.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}>`;
  });
}

const SAID: Record<Exclude<Flip, "">, string> = {
  explained: "noise explains it",
  fault: "noise does not explain it",
  unknown: "whether noise explains it is not known",
};

function decodeMap({ values, ...map }: WireMap, buffers: readonly DataView[]): TokenMap {
  return { ...map, values: decodeFloats(values, buffers) };
}

export function decodeTokens(wire: WireTokens, buffers: readonly DataView[]): Tokens {
  const ints = (name: "prompt" | "step" | "position" | "rank" | "generated" | "agrees" | "at_fault" | "explained"): Int32Array =>
    decodeInts(wire[name], buffers);
  const floats = (name: "kl" | "margin" | "margin_shift" | "margin_noise" | "severity"): Float64Array =>
    decodeFloats(wire[name], buffers);
  const words = (codes: Int32Array, dictionary: readonly string[]) => (row: number): string =>
    visibleText(dictionary[codes[row]] ?? "");
  const [prompt, step, position] = [ints("prompt"), ints("step"), ints("position")];
  const [kl, severity] = [floats("kl"), floats("severity")];
  const [margin, shift, noise] = [floats("margin"), floats("margin_shift"), floats("margin_noise")];
  const [agrees, explained, atFault, rank] = [ints("agrees"), ints("explained"), ints("at_fault"), ints("rank")];
  const text = words(decodeInts(wire.text, buffers), wire.texts);
  const reference = words(decodeInts(wire.text_reference, buffers), wire.text_references);
  const runtime = words(decodeInts(wire.text_runtime, buffers), wire.text_runtimes);
  const known = kl.filter((value) => value > 0 && Number.isFinite(value));
  const range = known.length > 0 ? ([known.reduce((a, b) => Math.min(a, b)), known.reduce((a, b) => Math.max(a, b))] as const) : null;
  const flip = (row: number): Flip => (agrees[row] ? "" : (["fault", "explained", "unknown"] as const)[explained[row]]);
  const heat = (row: number): number => {
    if (Number.isNaN(kl[row])) return 1;
    if (!range || kl[row] <= 0) return 0;
    return range[0] === range[1] ? 1 : Math.log(kl[row] / range[0]) / Math.log(range[1] / range[0]);
  };
  const about = (row: number): string => {
    const flipped = flip(row);
    const number = (value: number): string => (Number.isNaN(value) ? "not known" : formatMetric(value));
    return [
      `position ${position[row]}, call ${step[row]}: “${text(row)}”`,
      flipped && `flip: reference “${reference(row)}”, runtime “${runtime(row)}”; ${SAID[flipped]}`,
      !flipped && atFault[row] === 1 && (Number.isNaN(kl[row]) ? "NaN or Inf among the logits" : "the logits differ by more than noise"),
      `KL ${number(kl[row])} nats`,
      `margin ${number(margin[row])}, shifted by ${number(shift[row])}, noise ${number(noise[row])}`,
      `logits ${number(severity[row])} times their noise`,
      rank[row] > 1 && `rank ${rank[row]} at the runtime`,
    ]
      .filter(Boolean)
      .join("; ");
  };
  const rows = Array.from({ length: wire.rows }, (_, row) => row);
  const worst = rows.reduce((best, row) => (best < 0 || kl[row] > kl[best] ? row : best), -1);
  const first = [rows.find((row) => atFault[row]), rows.find((row) => !agrees[row]), worst].find((row) => row !== undefined) ?? -1;
  return {
    rows: wire.rows,
    call: wire.call,
    headline: wire.headline,
    card: wire.card ?? null,
    prompt,
    step,
    position,
    kl,
    severity,
    generated: ints("generated"),
    atFault,
    text,
    flip,
    heat,
    range,
    about,
    first,
    rowOf: (of, call) => rows.findLast((row) => prompt[row] === of && step[row] === call) ?? -1,
    prompts: [...new Set(prompt)],
    layers: wire.layers.map((map) => decodeMap(map, buffers)),
    cache: wire.cache.map((map) => decodeMap(map, buffers)),
  };
}
