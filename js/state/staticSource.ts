// Answers the questions of the view from a report instead of a kernel.
import type { Report } from "./container";
import type { Source } from "./rpc";

const NOT_HELD = {
  type: "UsageError",
  message: "This report holds no tensors for this row: write it with more rows or from a notebook.",
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
