// Questions get their own answers; silence is said, and a late answer is still used.
import { expect, test, vi } from "vitest";
import type { WireError, WireMessage } from "./contract";
import { type Answer, GONE, PATIENCE_MS, SILENT, isError, kernelSource } from "./source";

type Listener = (content: WireMessage, buffers?: DataView[]) => void;

function fakeModel() {
  const listeners = new Set<Listener>();
  const sent: { id: number; method: string }[] = [];
  return {
    sent,
    listeners,
    send: (content: unknown) => void sent.push(content as { id: number; method: string }),
    on: (_: "msg:custom", listener: Listener) => void listeners.add(listener),
    off: (_: "msg:custom", listener: Listener) => void listeners.delete(listener),
    emit: (message: WireMessage, buffers?: DataView[]) => listeners.forEach((one) => one(message, buffers)),
  };
}

test("answers find their questions in any order, with their buffers", () => {
  const model = fakeModel();
  const source = kernelSource(model);
  const answers: string[] = [];
  const note = (name: string) => (outcome: Answer | WireError) => {
    if (!isError(outcome)) answers.push(`${name} ${String(outcome.result)} ${outcome.buffers.length}`);
  };
  source.request("tensor", { row: 1 }, note("first"));
  source.request("tensor", { row: 2 }, note("second"));
  model.emit({ id: model.sent[1].id, result: "b" }, [new DataView(new ArrayBuffer(1))]);
  model.emit({ id: model.sent[0].id, result: "a" });
  model.emit({ id: 12345, result: "of another page" });
  expect(answers).toEqual(["second b 1", "first a 0"]);
});

test("an error of the kernel reaches the one who asked", () => {
  const model = fakeModel();
  const outcomes: (Answer | WireError)[] = [];
  kernelSource(model).request("payload", {}, (outcome) => outcomes.push(outcome));
  model.emit({ id: model.sent[0].id, error: { type: "ArtifactError", message: "empty file" } });
  expect(outcomes).toEqual([{ type: "ArtifactError", message: "empty file" }]);
});

test("after the limit the silence is said; the late answer still comes", () => {
  vi.useFakeTimers();
  const model = fakeModel();
  const outcomes: (Answer | WireError)[] = [];
  kernelSource(model, 30_000).request("payload", {}, (outcome) => outcomes.push(outcome));
  vi.advanceTimersByTime(30_001);
  expect(outcomes).toEqual([SILENT]);
  model.emit({ id: model.sent[0].id, result: 1 });
  expect(outcomes[1]).toMatchObject({ result: 1 });
  vi.useRealTimers();
});

test("events go to the listeners, and after dispose nothing is left on the model", () => {
  const model = fakeModel();
  const source = kernelSource(model);
  const events: WireMessage[] = [];
  source.onEvent((event) => events.push(event));
  model.emit({ event: "changed" });
  expect(events).toEqual([{ event: "changed" }]);
  source.dispose();
  expect(model.listeners.size).toBe(0);
});

test("a kernel that is silent for long is busy until it says something; longer work is no silence", () => {
  vi.useFakeTimers();
  const model = fakeModel();
  const source = kernelSource(model);
  source.request("zoom", {}, () => {}, null);
  vi.advanceTimersByTime(60_000);
  expect(source.state.value).toBe("ready");
  source.request("tensor", {}, () => {});
  vi.advanceTimersByTime(PATIENCE_MS + 1);
  expect(source.state.value).toBe("busy");
  model.emit({ id: model.sent[1].id, result: 1 });
  expect(source.state.value).toBe("ready");
  vi.useRealTimers();
});

test("a lost kernel settles every question, also those that are asked later", () => {
  const model = fakeModel();
  const source = kernelSource(model);
  const outcomes: (Answer | WireError)[] = [];
  source.request("zoom", {}, (outcome) => outcomes.push(outcome), null);
  source.lost();
  source.request("tensor", {}, (outcome) => outcomes.push(outcome));
  expect(outcomes).toEqual([GONE, GONE]);
  expect(source.kernel).toBe(false);
  expect(model.sent).toHaveLength(1);
});

test("an idle kernel that does not answer does not know the view", () => {
  vi.useFakeTimers();
  const source = kernelSource(fakeModel(), 30_000, () => true);
  source.request("hello", {}, () => {});
  vi.advanceTimersByTime(PATIENCE_MS + 1);
  expect(source.state.value).toBe("gone");
  vi.useRealTimers();
});

test("a kernel that takes no message is gone", () => {
  const outcomes: (Answer | WireError)[] = [];
  const send = (): void => {
    throw new Error("Kernel is disposed");
  };
  const source = kernelSource({ ...fakeModel(), send });
  source.request("tensor", {}, (outcome) => outcomes.push(outcome));
  expect(outcomes).toEqual([GONE]);
  expect(source.kernel).toBe(false);
});
