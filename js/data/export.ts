// The rows that the table shows, as other tools take them.
import { type Column, numberAt, textAt } from "./columns";
import { formatNumber } from "./format";
import type { Payload } from "./payload";

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
  const plain = (text: string): string => text.replaceAll("|", "\\|").replace(/\s+/g, " ");
  const cell = (column: Column, row: number): string => {
    if (column.name === "op") return `\`${plain(payload.nameOf(row)).replaceAll("`", "'")}\``;
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

/** The same rows of `inspection.gaps`, in the same order; rows inside of zoomed delegates are not in that table. */
export function pandasOf(payload: Payload, rows: readonly number[]): string {
  const own = rows.filter((row) => row < payload.compared && !payload.zooms.isInner(row));
  return `inspection.gaps.loc[[${own.join(", ")}]]`;
}
