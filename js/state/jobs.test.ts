// Longer work in the kernel: one at a time, cancelled without a complaint, failures kept until dismissed.
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { signal } from "@preact/signals";
import type { WireError } from "../kernel/contract";
import { type Answer, SILENT, type Settle, type Source, TIME_LIMIT_MS } from "../kernel/source";
import { Jobs } from "./jobs";

interface Asked {
  method: string;
  limit: number | null | undefined;
  settle: Settle;
}

const DONE: Answer = { result: { ok: true }, buffers: [] };
const REFUSED: WireError = { type: "BackendError", message: "the backend refused" };

function open(kernel = true, ended = (): void => {}): { jobs: Jobs; asked: Asked[] } {
  const asked: Asked[] = [];
  const source: Source = {
    kernel,
    state: signal("ready"),
    request: (method, _params, settle, limit) => void asked.push({ method, settle, limit }),
    onEvent() {},
    dispose() {},
  };
  return { jobs: new Jobs(source, ended), asked };
}

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test("work has no time limit, runs alone, and is gone when it is done", () => {
  const ended = vi.fn();
  const { jobs, asked } = open(true, ended);
  const done = vi.fn();
  jobs.start("zoom", { row: 3 }, done);
  jobs.start("attribution", { output: 0 });
  expect(asked.map(({ method, limit }) => [method, limit])).toEqual([["zoom", null]]);
  expect(jobs.of("zoom", 3)?.status).toBe("running");
  expect(jobs.of("zoom", 4)).toBeNull();
  asked[0].settle(DONE);
  expect(jobs.of("zoom")).toBeNull();
  expect(done).toHaveBeenCalledOnce();
  expect(ended).toHaveBeenCalledOnce();
});

test("a failure stays until it is dismissed, and doesn't block", () => {
  const { jobs, asked } = open();
  jobs.start("zoom", { row: 3 });
  asked[0].settle(REFUSED);
  expect(jobs.of("zoom")).toMatchObject({ status: "failed", error: REFUSED });
  expect(jobs.busy).toBe(false);
  jobs.dismiss();
  expect(jobs.of("zoom")).toBeNull();
});

test("what was cancelled ends without a complaint", () => {
  const { jobs, asked } = open();
  jobs.start("attribution", { output: 0 });
  jobs.cancel();
  jobs.cancel();
  expect(asked.map(({ method }) => method)).toEqual(["attribution", "cancel"]);
  expect(jobs.busy).toBe(true);
  asked[0].settle({ type: "Cancelled", message: "cancelled" });
  expect(jobs.of("attribution")).toBeNull();
});

test("a kernel that is gone is said when the work is cancelled", () => {
  const { jobs, asked } = open();
  jobs.start("zoom", { row: 1 });
  vi.advanceTimersByTime(10 * TIME_LIMIT_MS);
  expect(jobs.busy).toBe(true);
  jobs.cancel();
  asked[1].settle(SILENT);
  expect(jobs.of("zoom")).toMatchObject({ status: "failed", error: SILENT });
});

test("the late answer of a job that was given up is none to the one after it", () => {
  const { jobs, asked } = open();
  const params = { row: 1 };
  jobs.start("zoom", params);
  jobs.cancel();
  asked[1].settle(SILENT);
  jobs.start("zoom", params);
  asked[0].settle({ type: "Cancelled", message: "cancelled" });
  expect(jobs.of("zoom", 1)?.status).toBe("running");
  asked[2].settle(DONE);
  expect(jobs.of("zoom", 1)).toBeNull();
});

test("a report starts nothing", () => {
  const { jobs, asked } = open(false);
  jobs.start("zoom", { row: 3 });
  expect(asked).toEqual([]);
  expect(jobs.of("zoom")).toBeNull();
});
