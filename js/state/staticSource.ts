// Answers the questions of the view from a report instead of a kernel.
import type { Report } from "./container";
import type { WireError } from "./contract";
import type { Source } from "./rpc";

/** Not a failure: there is nothing to try again. */
export const NOT_IN_REPORT = "NotInReport";

const WITHOUT_TENSORS =
  'This report holds no histograms. A notebook, or a report written with tensors="histograms", shows them.';

function notHeld(report: Report, row: number): WireError {
  return { type: NOT_IN_REPORT, message: report.reason(row) ?? WITHOUT_TENSORS };
}

export function staticSource(report: Report): Source {
  return {
    instant: true,
    request(method, params, settle) {
      if (method === "payload") return settle(report.payload);
      const { row } = params as { row: number };
      settle(report.tensor(row) ?? notHeld(report, row));
    },
    onEvent() {},
    dispose() {},
  };
}
