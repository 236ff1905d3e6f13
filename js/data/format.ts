// Numbers as text: three significant digits, exponents only where they help, never a rounded lie
// (a severity of 2.998 is not shown as 3.00, 99.996 % is not shown as 100 %, 1e-320 is not shown as 0).
import type { Format } from "../kernel/contract";

const grouped = new Intl.NumberFormat("en-US");

export function formatCount(value: number): string {
  return grouped.format(value);
}

function special(value: number): string | null {
  if (Number.isNaN(value)) return "";
  if (value === Infinity) return "∞";
  return value === -Infinity ? "-∞" : null;
}

const MOST_DECIMALS = 9;
const THRESHOLD = 3; // of severity, as in etviz/tensors/metrics.py

/** 0.9999998 keeps the digits that tell it from 1, and is cut, not rounded; nearer: 1 - 3.10e-12. */
function nearOne(value: number, digits: number): string {
  const gap = 1 - Math.abs(value);
  if (gap === 0) return value.toPrecision(digits);
  const decimals = Math.max(digits, Math.ceil(-Math.log10(gap)) + 1);
  if (decimals > MOST_DECIMALS) {
    return `${value < 0 ? "-1 +" : "1 -"} ${gap.toExponential(digits - 1)}`;
  }
  const scale = 10 ** decimals;
  return (Math.trunc(value * scale) / scale).toFixed(decimals);
}

/** Three significant digits by default: 0.00123 -> 1.23e-3, 12.345 -> 12.3, 123456 -> 1.23e5. */
export function formatMetric(value: number, digits = 3): string {
  const text = special(value);
  if (text !== null) return text;
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-2 || size >= 1e5) return value.toExponential(digits - 1).replace("e+", "e");
  if (size > 0.99 && size <= 1) return nearOne(value, digits);
  const fixed = value.toPrecision(digits);
  if (Number(fixed) === THRESHOLD && value !== THRESHOLD) return formatMetric(value, digits + 1);
  return fixed.includes("e") || size >= 1000 ? formatCount(Math.round(value)) : fixed;
}

function formatPercent(share: number): string {
  if (share < 0) return share > -1e-3 ? "<0.1 %" : `-${formatPercent(-share)}`;
  const percent = share * 100;
  if (percent === 0 || percent === 100) return `${percent} %`;
  if (percent >= 1e5) return `${percent.toExponential(1).replace("e+", "e")} %`;
  const decimals = percent > 99.9 && percent < 100 ? 2 : 1;
  const scale = 10 ** decimals;
  const cut = percent < 100 ? Math.floor(percent * scale) / scale : percent;
  return cut === 0 ? "<0.1 %" : `${cut.toFixed(decimals)} %`;
}

/** Text of a number in a column of this format; "" where it is not known. */
export function formatNumber(value: number, format: Format): string {
  const text = special(value);
  if (text !== null) return text;
  switch (format) {
    case "int":
      return formatCount(value);
    case "db":
      return value.toFixed(1);
    case "ms":
      return formatMilliseconds(value);
    case "percent":
      return formatPercent(value);
    default:
      return formatMetric(value);
  }
}

/** Text of a number in a column with numbers from 10⁵: thousands have the same form. */
export function formatBeside(value: number, format: Format, largest: number): string {
  const size = Math.abs(value);
  if (format !== "metric" || largest < 1e5 || !(size >= 1e3 && size < 1e5)) return formatNumber(value, format);
  return value.toExponential(2).replace("e+", "e");
}

/** At most three decimals, two digits for the very short: 118.2, 12.30, 0.375, 0.0042, 2.1e-5. */
export function formatMilliseconds(value: number): string {
  if (value === 0) return "0";
  if (value < 1e-4) return value.toExponential(1);
  if (value < 1e-2) return value.toPrecision(2);
  return value.toFixed(value >= 100 ? 1 : value >= 10 ? 2 : 3);
}

/** Every digit that matters, for tooltips and the clipboard. */
export function formatExact(value: number): string {
  return special(value) ?? String(value);
}
