// A strip of the executions: one cell each, coloured by the worst error that an operator adds in it. All inputs, or this one?
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { formatMetric } from "../data/format";
import { gaugeOf } from "../data/gauge";
import type { Payload } from "../data/payload";
import { ownError, worstOf } from "../data/rank";
import { useApp } from "../ui/context";

interface Execution {
  run: number;
  step: number;
  text: string;
}

function executionsOf(payload: Payload): Execution[] {
  const column = ownError(payload);
  const rowsOf = new Map<number, number[]>();
  for (let row = 0; row < payload.compared; row++) {
    if (payload.unused[row]) continue;
    const run = payload.number("run", row);
    const rows = rowsOf.get(run);
    if (rows) rows.push(row);
    else rowsOf.set(run, [row]);
  }
  return (payload.runs?.numbers ?? []).map((run) => {
    const row = column ? worstOf(payload, rowsOf.get(run) ?? [], column.name) : -1;
    if (!column || row < 0) return { run, step: 0, text: `run ${run}: not known` };
    const mismatch = payload.mismatch[row] === 1;
    const step = Number(gaugeOf(column)(column.values[row], mismatch, row)?.step ?? 0) || 0;
    const worst = mismatch ? "mismatch" : formatMetric(column.values[row]);
    return { run, step, text: `run ${run}: worst ${column.label} ${worst}, ${payload.nameOf(row)}` };
  });
}

export function RunStrip({ payload }: { payload: Payload }): JSX.Element | null {
  const app = useApp();
  const executions = useMemo(() => executionsOf(payload), [payload]);
  if (executions.length < 2 || payload.tokens) return null;
  return (
    <div class="etv-run-strip" role="group" aria-label="Executions">
      {executions.map(({ run, step, text }) => {
        const chosen = app.rows.run.value === `run:${run}`;
        return (
          <button
            key={run}
            type="button"
            class={`etv-run etv-step-${step}`}
            aria-pressed={chosen}
            aria-label={text}
            data-tip={text}
            onClick={() => app.chooseRun(chosen ? "" : `run:${run}`)}
          />
        );
      })}
    </div>
  );
}
