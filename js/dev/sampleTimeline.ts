// A made-up execution: a call for each of some rows, and two events inside of every other one.
import type { WireTimeline } from "../kernel/contract";
import type { Answer } from "../kernel/source";
import { Pool } from "./pool";

const CALLS = 6;

export function sampleTimeline(run: number): Answer<WireTimeline> {
  const pool = new Pool();
  const events = [{ start: 0, length: CALLS, level: 0, kind: 0, row: -1, name: "Method::execute", operator: null as string | null }];
  for (let row = 0; row < CALLS; row++) {
    events.push({ start: row, length: 0.9, level: 1, kind: 1, row, name: `call ${row}`, operator: null });
    if (row % 2 === 1) continue;
    events.push({ start: row + 0.1, length: 0.2, level: 2, kind: 2, row: -1, name: "Transpose #1", operator: null });
    events.push({ start: row + 0.4, length: 0.4, level: 2, kind: 2, row: -1, name: "Fully Connected #1", operator: "linear" });
  }
  const names = pool.texts(events.map(({ name }) => name));
  const operators = pool.texts(events.map(({ operator }) => operator));
  const confidences = pool.texts(events.map(({ operator }) => operator && "likely"));
  const result: WireTimeline = {
    run,
    count: events.length,
    start: pool.floats(events.map(({ start }) => start)),
    length: pool.floats(events.map(({ length }) => length)),
    level: pool.ints(events.map(({ level }) => level)),
    kind: pool.ints(events.map(({ kind }) => kind)),
    row: pool.ints(events.map(({ row }) => row)),
    instruction: pool.ints(events.map(({ row }) => row)),
    name: names.values,
    names: names.dictionary,
    operator: operators.values,
    operators: operators.dictionary,
    confidence: confidences.values,
    confidences: confidences.dictionary,
    notes: [],
  };
  return { result, buffers: pool.buffers };
}
