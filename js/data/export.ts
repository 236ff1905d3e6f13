// The rows that the table shows, as other tools take them.
import { type Column, INTRODUCED_PART, MISMATCHES, type NumberColumn, isMetric, numberAt, textAt } from "./columns";
import { readQuery } from "./filter";
import { formatNumber } from "./format";
import type { Payload } from "./payload";
import { type Span, type Term, columnsOf, spanOf } from "./query";
import type { SortKey } from "./sort";

function cellOf(column: Column, row: number): string {
  const value = numberAt(column, row);
  return column.kind === "text" ? (textAt(column, row) ?? "") : Number.isNaN(value) ? "" : String(value);
}

/** RFC 4180. */
export function csvOf(rows: readonly number[], columns: readonly Column[]): string {
  // What begins like a formula is none in a spreadsheet.
  const quoted = (text: string): string => {
    const plain = /^[=+\-@\t]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
    return /[",\n\r]/.test(plain) ? `"${plain.replaceAll('"', '""')}"` : plain;
  };
  const lines = [columns.map(({ name }) => name), ...rows.map((row) => columns.map((column) => cellOf(column, row)))];
  return lines.map((line) => line.map(quoted).join(",")).join("\r\n") + "\r\n";
}

export function markdownOf(payload: Payload, rows: readonly number[], columns: readonly Column[]): string {
  // As `etviz.text.markdown`: nobody is mentioned, and nothing is loaded.
  const marks: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;" };
  const plain = (text: string): string =>
    text
      .replace(/\s+/g, " ")
      .trim()
      .replace(/[&<>@]/g, (mark) => marks[mark])
      .replace(/[\\|`*[\]~]|(?<![\p{L}\p{N}_])_|_(?![\p{L}\p{N}_])/gu, "\\$&");
  const cell = (column: Column, row: number): string => {
    if (column.name === "op") return plain(payload.nameOf(row));
    if (column.kind === "text") return plain(textAt(column, row) ?? "");
    return plain(formatNumber(column.values[row], column.format));
  };
  const lines = [
    columns.map(({ label }) => plain(label)),
    columns.map(({ kind }) => (kind === "number" ? "---:" : "---")),
    ...rows.map((row) => columns.map((column) => cell(column, row))),
  ];
  return lines.map((line) => `| ${line.join(" | ")} |`).join("\n") + "\n";
}

/** Text columns that `inspection.gaps` has as they are shown. */
const SAME_TEXTS = ["kind", "backend", "module", "source", "dtype", "pairing", "status", "reason"];
/** Groups of numbers that it does not have. */
const NOT_IN_GAPS = ["attribution", "quantization", "beside", "ratio"];
const MOST_LEFT_OUT = 20;

function inGaps(column: Column): boolean {
  if (column.name === INTRODUCED_PART || NOT_IN_GAPS.includes(column.group)) return false;
  return column.kind === "number" || SAME_TEXTS.includes(column.name);
}

/** A limit as pandas has it; a non-finite mismatch is beyond every number, on the bad side. */
function spanCondition(column: NumberColumn, { low, high, closed }: Span): string {
  const { name } = column;
  const parts = [
    low > -Infinity && `${name} ${closed ? ">=" : ">"} ${low}`,
    high < Infinity && `${name} ${closed ? "<=" : "<"} ${high}`,
  ].filter(Boolean);
  const inside = low === high ? `${name} == ${low}` : parts.join(" and ") || `${name} == ${name}`;
  if (!isMetric(column)) return inside;
  const bad = column.better === "high" ? low === -Infinity : high === Infinity;
  const wrong = JSON.stringify(MISMATCHES);
  return bad ? `(${inside}) or status in ${wrong}` : `(${inside}) and status not in ${wrong}`;
}

function textCondition({ name }: Column, value: string): string {
  const each = value.split(",").map((one) => {
    if (!one.includes("*")) return `${name}.str.contains(${JSON.stringify(one)}, case=False, regex=False, na=False)`;
    const pattern = one.split("*").map((part) => part.replace(/[.+?^${}()|[\]\\]/g, "\\$&"));
    return `${name}.str.fullmatch(${JSON.stringify(pattern.join(".*"))}, case=False, na=False)`;
  });
  return each.join(" or ");
}

/** A term of the search as a condition of `DataFrame.query`; null for what only the view knows. */
function conditionOf(term: Term, payload: Payload): string | null {
  const [column, ...others] = columnsOf(term.field, payload.column);
  if (!column || others.length > 0 || !inGaps(column)) return null;
  const span = spanOf(term);
  if (column.kind === "number" && !span) return null;
  const condition = column.kind === "number" && span ? spanCondition(column, span) : textCondition(column, term.value);
  return term.exclude ? `not (${condition})` : `(${condition})`;
}

/**
 * The same rows of `inspection.gaps`: as a query where its table can answer the search, else by their index. Rows inside
 * of zoomed delegates are not in that table.
 */
export function pandasOf(payload: Payload, rows: readonly number[], filter: string, keys: readonly SortKey[]): string {
  const own = rows.filter((row) => row < payload.compared && !payload.zooms.isInner(row));
  const byIndex = `inspection.gaps.loc[[${own.join(", ")}]]`;
  const [{ column: by, descending }] = keys;
  const sorted = payload.column(by);
  const { terms, problems } = readQuery(payload, filter);
  const conditions = terms.map((term) => conditionOf(term, payload));
  const hidden = [...payload.unused.keys()].filter((row) => payload.unused[row] && !payload.zooms.isInner(row));
  if (payload.runs || problems.length > 0 || conditions.includes(null) || hidden.length > MOST_LEFT_OUT) return byIndex;
  if (!sorted || !inGaps(sorted) || payload.mismatch.includes(1)) return byIndex;
  if (hidden.length > 0) conditions.push(`index not in [${hidden.join(", ")}]`);
  const query = conditions.length > 0 ? `.query(${JSON.stringify(conditions.join(" and "))}, engine="python")` : "";
  return `inspection.gaps${query}.sort_values("${by}", ascending=${descending ? "False" : "True"})`;
}
