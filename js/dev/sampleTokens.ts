// Tokens of a language model for the tests and the harness: two prompts, flips of every kind, a text that hides something.
import type { WireTokens } from "../kernel/contract";
import type { Pool } from "./pool";

const TEXTS = ["The", " house", "\n", " is", "\u202e", " old", "<b>", " x"];

export interface TokenOptions {
  rows?: number;
  layers?: number;
  call?: [number, number] | null;
}

/** Row 3 is a flip that noise explains, row 5 one that it does not; the last quarter is the second prompt's. */
export function sampleTokens(pool: Pool, { rows = 12, layers = 2, call = null }: TokenOptions): WireTokens {
  const all = Array.from({ length: rows }, (_, row) => row);
  const second = Math.ceil((3 * rows) / 4);
  const steps = all.map((row) => (row < second ? row : row - second));
  const ints = (value: (row: number) => number) => pool.ints(all.map(value));
  const floats = (value: (row: number) => number) => pool.floats(all.map(value));
  const words = (value: (row: number) => string) => {
    const { values, dictionary } = pool.texts(all.map(value));
    return { codes: values, dictionary };
  };
  const text = words((row) => TEXTS[row % TEXTS.length]);
  const other = words((row) => (row === 3 || row === 5 ? " barn" : TEXTS[row % TEXTS.length]));
  const severity = Array.from({ length: layers * second }, (_, k) => (k === second + 5 ? 40 : (k % 7) / 3));
  return {
    rows,
    call,
    headline: "The logits differ by more than noise from prompt 0, step 5, position 5 on.\nKL divergence: mean 0.01.",
    prompt: ints((row) => (row < second ? 0 : 1)),
    step: ints((row) => steps[row]),
    position: ints((row) => steps[row]),
    rank: ints((row) => (row === 5 ? 2 : 1)),
    kl: floats((row) => (row === 5 ? 0.3 : 1e-6 * (row + 1))),
    margin: floats((row) => 0.5 + row),
    margin_shift: floats((row) => (row === 5 ? -6 : 1e-3)),
    margin_noise: floats(() => 2e-3),
    severity: floats((row) => (row === 5 ? 31 : 0.4)),
    generated: ints((row) => Number(steps[row] > 1)),
    agrees: ints((row) => Number(row !== 3 && row !== 5)),
    at_fault: ints((row) => Number(row === 5)),
    explained: ints((row) => (row === 5 ? 0 : 1)),
    text: text.codes,
    texts: text.dictionary,
    text_reference: text.codes,
    text_references: text.dictionary,
    text_runtime: other.codes,
    text_runtimes: other.dictionary,
    layers: [
      {
        prompt: 0,
        layers: Array.from({ length: layers }, (_, k) => `layers.${k}`),
        width: second,
        values: pool.floats(severity),
      },
    ],
    cache: [],
  };
}
