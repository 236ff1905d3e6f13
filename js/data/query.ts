// The language of the search box: words, fields and limits, one after the other, all of which must hold.
//   layer_norm "two words" -linear module:encoder.* op:softmax shape:*x768 severity>10 at:10..40 is:nan -kind:delegate
import type { Column } from "./columns";

export type Operator = ":" | ">=" | "<=" | ">" | "<" | "=";

export interface Term {
  /** As it was written. */
  text: string;
  /** "" for a word. */
  field: string;
  operator: Operator;
  value: string;
  exclude: boolean;
  /** What stands where a field would, of a word. */
  unknown?: string;
}

/** What people write for columns, and the columns that are looked at. */
const ALIASES: Record<string, readonly string[]> = {
  op: ["op", "reference_ops"],
  ref: ["reference_ops"],
  at: ["instruction"],
  "#": ["instruction"],
  total: ["severity"],
  introduced: ["introduced_severity"],
  share: ["attribution"],
  latency: ["latency_ms"],
  sqnr: ["sqnr_db"],
  psnr: ["psnr_db"],
};

/** What can follow `is:`. */
export const FLAGS: Record<string, string> = {
  fault: "adds far more error than its precision explains",
  look: "adds more error than its precision explains",
  first: "where it begins",
  nan: "has NaN in reference or runtime",
  inf: "has infinite elements in reference or runtime",
  mismatch: "NaN or Inf in only one of the two",
  inside: "operators inside zoomed delegates",
  unused: "a value that nobody reads, such as the mean of a layer norm",
  compared: "was compared by itself",
  grouped: "was compared together with others",
  uncompared: "was not compared; the column “reason” says why",
  any: "every row, compared or not",
};

/** The columns in which words are looked for. */
export const WORD_COLUMNS: readonly string[] = ["op", "module", "source", "reference_ops", "backend"];

/** The flags that say which rows there are at all: without them, what was not compared or is not read is left out. */
export const STATUS_FLAGS: readonly string[] = ["compared", "grouped", "uncompared", "unused", "any"];

const TERM = /(-?)(?:([A-Za-z_#][\w]*|#)(:|>=|<=|>|<|=))?(?:"([^"]*)"?|(\S*))/y;

/** The terms of a text; a field without a value yet is left out. */
export function parseQuery(text: string, isField: (name: string) => boolean): Term[] {
  const terms: Term[] = [];
  const blank = /\s*/y;
  for (let at = 0; at < text.length;) {
    blank.lastIndex = at;
    at += blank.exec(text)?.[0].length ?? 0;
    TERM.lastIndex = at;
    const match = TERM.exec(text);
    if (!match || match[0] === "") break;
    at += match[0].length;
    const [whole, minus, field = "", operator = ":", quoted, plain = ""] = match;
    const known = field !== "" && isField(field.toLowerCase());
    const word = known || quoted !== undefined ? (quoted ?? plain) : whole.slice(minus.length);
    if (word === "") continue;
    terms.push({
      text: whole,
      field: known ? field.toLowerCase() : "",
      operator: operator as Operator,
      value: word.toLowerCase(),
      exclude: minus === "-",
      ...(known || quoted !== undefined || field === "" ? {} : { unknown: field }),
    });
  }
  return terms;
}

/** The columns that a field stands for; none for `is`, which stands for flags. */
export function columnsOf(field: string, column: (name: string) => Column | undefined): Column[] {
  return (ALIASES[field] ?? [field]).map(column).filter((found) => found !== undefined);
}

export function isField(name: string, column: (name: string) => Column | undefined): boolean {
  return name === "is" || columnsOf(name, column).length > 0;
}

/** The names under which fields are offered. */
export function fieldNames(columns: readonly Column[]): { name: string; about: string }[] {
  const told = new Map(columns.map(({ name, description }) => [name, description]));
  const short = Object.entries(ALIASES).filter(([alias, [name]]) => !told.has(alias) && alias !== "#" && told.has(name));
  return [
    { name: "is", about: Object.keys(FLAGS).join(", ") },
    ...short.map(([name, [column]]) => ({ name, about: told.get(column) ?? "" })),
    ...columns.map(({ name, description }) => ({ name, about: description })),
  ];
}

/** True if a text begins with the first part, ends with the last, and has the others between them; takes linear time. */
function inOrder(text: string, [first, ...rest]: readonly string[]): boolean {
  const last = rest.pop() ?? "";
  const end = text.length - last.length;
  if (!text.startsWith(first) || !text.endsWith(last)) return false;
  let at = first.length;
  for (const part of rest) {
    const found = text.indexOf(part, at);
    if (found < 0) return false;
    at = found + part.length;
  }
  return at <= end;
}

/** True for the name of a row that begins with an address: `#22` means `#22`, `#22[1]` and `#22.3`, but not `#221`. */
export function addressMatcher(address: string): (entry: string) => boolean {
  return (entry) => entry.startsWith(address) && !/\d/.test(entry.charAt(address.length));
}

/** True for the entries of a dictionary that a value means: `*` stands for anything, a comma for "or". */
export function textMatcher(value: string): (entry: string) => boolean {
  const matchers = value.split(",").map((one) => {
    if (!one.includes("*")) return (entry: string) => entry.includes(one);
    const parts = one.split("*");
    return (entry: string) => inOrder(entry, parts);
  });
  return (entry) => {
    const lower = entry.toLowerCase();
    // Shapes can be written as 1x197x768.
    const shape = lower.startsWith("[") ? lower.slice(1, -1).replaceAll(", ", "x") : null;
    return matchers.some((matches) => matches(lower) || (shape !== null && matches(shape)));
  };
}

/** The numbers that a term means; null if it is none. */
export interface Span {
  low: number;
  high: number;
  /** Whether a finite end belongs to it. */
  closed: boolean;
}

export function spanOf({ operator, value }: Term): Span | null {
  const range = /^(.*?)\.\.(.*)$/.exec(value);
  const inner = operator === ":" ? /^(>=|<=|>|<|=)(.*)$/.exec(value) : null;
  if (inner) return spanOf({ text: "", field: "", exclude: false, operator: inner[1] as Operator, value: inner[2] });
  const number = (text: string, otherwise: number): number => (text === "" ? otherwise : Number(text));
  const [low, high] = range
    ? [number(range[1], -Infinity), number(range[2], Infinity)]
    : [Number(value), Number(value)];
  if (Number.isNaN(low) || Number.isNaN(high) || value === "") return null;
  if (operator === ">" || operator === ">=") return { low, high: Infinity, closed: operator === ">=" };
  if (operator === "<" || operator === "<=") return { low: -Infinity, high, closed: operator === "<=" };
  return { low, high, closed: true };
}

/** True if a word may be meant as a field: it has a limit behind it, or it stands nowhere. */
function meantAsField({ operator, text, value }: Term, column: (name: string) => Column | undefined): boolean {
  if (operator !== ":") return true;
  const stands = (name: string): boolean => {
    const found = column(name);
    return found?.kind === "text" && found.dictionary.some((entry) => entry.toLowerCase().includes(value));
  };
  return /\w:[\w*"]/.test(text) && !WORD_COLUMNS.some(stands);
}

/** What is wrong with a term; null if nothing is. */
export function problemOf(term: Term, column: (name: string) => Column | undefined): string | null {
  if (term.unknown && meantAsField(term, column)) return `${term.text}: there is no column ${term.unknown}`;
  if (term.field === "") return null;
  if (term.field === "is") {
    return term.value in FLAGS ? null : `is:${term.value} is not known; there are ${Object.keys(FLAGS).join(", ")}`;
  }
  const number = columnsOf(term.field, column).some(({ kind }) => kind === "number");
  if (number && !spanOf(term)) return `${term.text}: ${term.value} is no number, and no range such as 1..10`;
  if (!number && term.operator !== ":" && term.operator !== "=") return `${term.text}: ${term.field} is a text, write ${term.field}:${term.value}`;
  return null;
}

/** A text whose terms of some fields are replaced by others. */
export function withTerms(text: string, fields: readonly string[], terms: string): string {
  const kept = parseQuery(text, () => true).filter(({ field }) => !fields.includes(field));
  return [...kept.map((term) => term.text), terms].filter(Boolean).join(" ");
}

/** Which instructions are shown: `span` replaces the one that there is. */
export function withSpan(text: string, span: string): string {
  return withTerms(text, ["at", "run"], span);
}
