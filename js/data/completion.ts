// What can come next in the search box.
import { type Column, isMetric } from "./columns";
import { textCounts } from "./filter";
import { formatCount } from "./format";
import type { Payload } from "./payload";
import { FLAGS, columnsOf, fieldNames } from "./query";

export interface Completion {
  /** The term. */
  text: string;
  about: string;
  /** The whole text with the term in its place. */
  whole: string;
}

/** What is offered while nothing is typed. */
const STARTERS = ["is:look", "is:fault", "is:first", "is:nan", "op:", "module:", "severity>", "kind:"];
const MOST = 12;

function quoted(text: string): string {
  return text.includes(" ") ? `"${text}"` : text;
}

function values(field: string, columns: readonly Column[]): [string, string][] {
  const [column] = columns;
  if (field === "is") return Object.entries(FLAGS);
  if (field === "op") return operators(column);
  if (column?.kind === "text") {
    const counts = columns.flatMap(textCounts).sort((a, b) => b.count - a.count);
    return counts.map(({ text, count }) => [quoted(text), `${formatCount(count)} rows`]);
  }
  return [];
}

/** What names of rows end with: of "norm1 · layer_norm [1]" the operator, with the number of rows that have it. */
function operators(column: Column | undefined): [string, string][] {
  const counts = new Map<string, number>();
  for (const { text, count } of textCounts(column)) {
    const [operator] = (text.split(" · ").pop() ?? text).split(/[\s,+]/);
    counts.set(operator, (counts.get(operator) ?? 0) + count);
  }
  return [...counts].sort((a, b) => b[1] - a[1]).map(([text, count]) => [text, `${formatCount(count)} rows`]);
}

/** The blank before the term that stands at a position. */
function startOf(text: string, at: number): number {
  const inQuotes = (text.slice(0, at).match(/"/g)?.length ?? 0) % 2 === 1;
  return text.lastIndexOf(" ", inQuotes ? text.lastIndexOf('"', at - 1) : at - 1) + 1;
}

export function completions(payload: Payload, text: string, at: number): Completion[] {
  const from = startOf(text, at);
  const [, minus, name, sign, typed] = /^(-?)([\w#]*)(:|[<>]=?|=)?"?(.*)$/s.exec(text.slice(from, at)) ?? [];
  const offer = (term: string, about: string, done: boolean): Completion => ({
    text: term,
    about,
    whole: `${text.slice(0, from)}${minus ?? ""}${term}${text.slice(at) || (done ? " " : "")}`,
  });
  const field = (name ?? "").toLowerCase();
  if (sign) {
    const wanted = (typed ?? "").toLowerCase();
    return values(field, columnsOf(field, payload.column))
      .filter(([value]) => value.toLowerCase().includes(wanted))
      .slice(0, MOST)
      .map(([value, about]) => offer(`${field}:${value}`, about, true));
  }
  const names = fieldNames(payload.columns);
  const term = ({ name: one, about }: { name: string; about: string }): Completion => {
    const [column] = columnsOf(one, payload.column);
    const number = column?.kind === "number";
    const limit = number && isMetric(column) ? (column.better === "high" ? "<" : ">") : ":";
    return offer(`${one}${limit}`, about, false);
  };
  if (field === "") {
    return STARTERS.flatMap((starter) => {
      const [one, flag] = starter.split(/[:>]/);
      if (flag) return [offer(starter, FLAGS[flag], true)];
      return names.filter((known) => known.name === one || (one === "op" && known.name === "op")).map(term);
    });
  }
  return names
    .filter((known) => known.name.startsWith(field))
    .slice(0, MOST)
    .map(term);
}
