// Answers the questions of the view from a report instead of a kernel.
import type { Report } from "./container";
import type { WireError } from "./contract";
import type { Answer, Source } from "./rpc";

/** Not a failure: there is nothing to try again. */
export const NOT_IN_REPORT = "NotInReport";

const WITHOUT_TENSORS =
  'This report holds no histograms. A notebook, or a report written with tensors="histograms", shows them.';

/** What the view calls the answers that only some rows of a report have. */
const NAMES: Record<string, string> = {
  error_map: "error map",
  scatter: "scatter",
  channels: "channels",
};

function notHeld(message: string): WireError {
  return { type: NOT_IN_REPORT, message };
}

function tensor(report: Report, row: number): Answer | WireError {
  return report.tensor(row) ?? notHeld(report.reason(row) ?? WITHOUT_TENSORS);
}

/** A stored answer fits only the question that it was stored for. */
function isStored(method: string, params: Record<string, unknown>): boolean {
  return method !== "error_map" || (params.of === "error" && params.axes === null && params.index === null);
}

function other(report: Report, method: string, params: Record<string, unknown>): Answer | WireError {
  const name = NAMES[method];
  if (!name) return notHeld("A report can't compute anything new. A notebook can.");
  const held = report.answer(method, Number(params.row));
  if (held && isStored(method, params)) return held;
  if (held) return notHeld(`Not in this report: it holds the ${name} of this row as shown at first.`);
  return notHeld(
    `Not in this report: a report written with tensors="worst" holds the ${name} of its worst rows, ` +
      "a notebook that of every row.",
  );
}

export function staticSource(report: Report): Source {
  return {
    instant: true,
    kernel: false,
    request(method, params, settle) {
      if (method === "payload") return settle(report.payload);
      if (method === "tensor") return settle(tensor(report, (params as { row: number }).row));
      settle(other(report, method, params as Record<string, unknown>));
    },
    onEvent() {},
    dispose() {},
  };
}
