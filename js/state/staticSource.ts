// Answers the questions of the view from a report instead of a kernel.
import type { Report } from "./container";
import type { Source } from "./rpc";

/** Not a failure: there is nothing to try again. */
export const NOT_IN_REPORT = "NotInReport";

const NOT_HELD = {
  type: NOT_IN_REPORT,
  message: "This report holds no histograms for this row. A notebook, or a report of all rows, shows them.",
};

export function staticSource(report: Report): Source {
  return {
    request(method, params, settle) {
      if (method === "payload") return settle(report.payload);
      const { row } = params as { row?: number };
      settle((row === undefined ? null : report.tensor(row)) ?? NOT_HELD);
    },
    onEvent() {},
    dispose() {},
  };
}
