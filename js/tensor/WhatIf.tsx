// What if: the outputs as they would be, had this row been exact, or this and those that are pinned. The proof.
import type { JSX } from "preact";
import { decodeNumber } from "../kernel/codec";
import type { WireWhatIf } from "../kernel/contract";
import { formatMetric, formatNumber } from "../data/format";
import type { Payload } from "../data/payload";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { JobLine } from "../ui/JobLine";
import { Section } from "./Section";

const TIP =
  "Puts what the operator gives on the runtime's inputs in place of what the runtime gave, and computes all that " +
  "depends on it again, with the errors of the others in it";

function figure(value: number | null): string {
  return value === null || Number.isNaN(value) ? "not known" : formatMetric(value);
}

function Output({ output, scores }: { output: WireWhatIf["outputs"][number]; scores: boolean }): JSX.Element {
  const [before, after] = [decodeNumber(output.before), decodeNumber(output.after)];
  const gone = before !== null && after !== null && before > 0 ? 1 - after / before : NaN;
  return (
    <tr>
      <th scope="row">{output.name}</th>
      <td>{figure(before)}</td>
      <td>{figure(after)}</td>
      <td>{Number.isNaN(gone) ? "–" : formatNumber(gone, "percent")}</td>
      {scores && (
        <td data-tip={output.top1 ? "Largest score in reference, at runtime, and as it would be" : undefined}>
          {output.top1 ? `${output.top1[0]}: ${output.top1[1]} → ${output.top1[2]}` : "–"}
        </td>
      )}
    </tr>
  );
}

export function WhatIf({ payload, row }: { payload: Payload; row: number }): JSX.Element | null {
  const app = useApp();
  const { jobs, source } = app.store;
  const job = jobs.of("what_if");
  const { pins, whatIf } = app.view;
  const others = pins.value.filter((pin) => pin !== row && pin < payload.compared).length;
  const held = whatIf.value?.rows.includes(row) ? whatIf.value : null;
  if (!source.kernel && !held) return null;
  const scores = held?.outputs.some(({ top1 }) => top1) ?? false;
  const asked = others > 0 ? `What if this and ${others} pinned were exact?` : "What if it were exact?";
  return (
    <div class="etv-what-if">
      {source.kernel && !job && (
        <Button disabled={jobs.busy} data-tip={TIP} onClick={() => app.whatIf(row)}>
          {asked}
        </Button>
      )}
      {job && <JobLine job={job} doing="Computing the outputs again" retry={() => app.whatIf(row)} />}
      {held && (
        <Section title="If it were exact" hint={held.rows.map(payload.nameOf).join(", ")}>
          <table class="etv-figures">
            <thead>
              <tr>
                {["output", "RMSE now", "then", "gone", ...(scores ? ["top-1"] : [])].map((head) => (
                  <th key={head} scope="col">
                    {head}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {held.outputs.map((output) => (
                <Output key={output.name} output={output} scores={scores} />
              ))}
            </tbody>
          </table>
        </Section>
      )}
    </div>
  );
}
