// The bar above the panes: what is searched for, what is left out at first, how many rows are left, columns.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { readQuery, statusCounts } from "../data/filter";
import { formatCount } from "../data/format";
import type { Payload } from "../data/payload";
import { EVERY_RUN } from "../data/runs";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { Icon, LevelIcon } from "../ui/Icon";
import { Select } from "../ui/Select";
import { ColumnChooser } from "./ColumnChooser";
import { RunStrip } from "./RunStrip";
import { SearchBox } from "./SearchBox";

/** Adds what is left out at first to the rows (instructions without a gap, values that nobody reads), or takes it away. */
function RestSwitch({ payload }: { payload: Payload }): JSX.Element | null {
  const { filter } = useApp().store.traits;
  const [uncompared, unread] = useMemo(
    () => [statusCounts(payload)["not compared"], payload.unused.reduce((sum, flag) => sum + flag, 0)],
    [payload],
  );
  const { terms } = readQuery(payload, filter.value);
  const shown = terms.some(({ field, value }) => field === "is" && value === "any");
  if (uncompared + unread === 0) return null;
  const tip = [
    uncompared > 0 && "Instructions that were not compared; the column “reason” says why.",
    unread > 0 && "Values that nobody reads, such as the mean of a layer norm, with nothing wrong in them.",
  ];
  return (
    <button
      type="button"
      class="etv-switch etv-alone"
      aria-pressed={shown}
      data-tip={tip.filter(Boolean).join("\n")}
      onClick={() => {
        const others = terms.filter(({ field, value }) => field !== "is" || value !== "any").map(({ text }) => text);
        filter.value = [...others, ...(shown ? [] : ["is:any"])].join(" ");
      }}
    >
      {uncompared > 0 && <>not compared <span class="etv-switch-count">{formatCount(uncompared)}</span></>}
      {uncompared > 0 && unread > 0 && " · "}
      {unread > 0 && <>unused <span class="etv-switch-count">{formatCount(unread)}</span></>}
    </button>
  );
}

/** Which method is shown; nothing for a program that has one. */
function MethodSelect({ payload: { method, methods, tokens } }: { payload: Payload }): JSX.Element | null {
  const { store } = useApp();
  if (methods.length < 2 || tokens) return null;
  const job = store.jobs.of("method");
  const waits = job?.status === "running";
  return (
    <>
      <Select
        label="Method that is shown"
        class="etv-method-select"
        data-tip="The methods of the program; each has its own selection and filter"
        choices={methods.map((name) => ({ name, text: name }))}
        value={String(waits ? job.params.method : method)}
        disabled={store.jobs.busy}
        onChange={(name) => store.showMethod(name)}
      />
      {waits && <span role="status">reading…</span>}
      {job?.error && (
        <span class="etv-method-failed" role="alert" data-tip={job.error.message} tabIndex={0}>
          <LevelIcon level="bad" /> {job.error.message}
        </span>
      )}
    </>
  );
}

/** Which executions are shown; nothing for a program that ran once. */
function RunSelect({ payload }: { payload: Payload }): JSX.Element | null {
  const app = useApp();
  const { runs } = payload;
  if (!runs) return null;
  const count = formatCount(runs.numbers.length);
  const chosen = app.rows.run.value;
  const choices = [
    { name: "", text: `worst of ${count} runs` },
    { name: EVERY_RUN, text: `all ${count} runs` },
    ...runs.numbers.map((run) => ({ name: `run:${run}`, text: `run ${run}` })),
  ];
  if (!choices.some(({ name }) => name === chosen)) choices.push({ name: chosen, text: chosen });
  return (
    <Select
      label="Runs that are shown"
      class="etv-run-select"
      data-tip="Executions of the program. Of a value that is in each of them, the worst is shown"
      choices={choices}
      value={chosen}
      onChange={(run) => app.chooseRun(run)}
    />
  );
}

function RowCount({ payload }: { payload: Payload }): JSX.Element {
  const { rows, selection, view } = useApp();
  const hidden = rows.positions.value[selection.row.value] === -1;
  return (
    <span class="etv-count" role="status">
      {view.said.value && <span class="etv-count-said">{view.said.value} · </span>}
      {hidden && <span class="etv-count-hidden">selected row is filtered out · </span>}
      {formatCount(rows.order.value.length)} of {formatCount(payload.rows)} rows
    </span>
  );
}

export function FilterBar({ payload }: { payload: Payload }): JSX.Element {
  const { rows } = useApp();
  return (
    <div class="etv-bar" role="search" aria-label="Filters">
      <SearchBox payload={payload} />
      <MethodSelect payload={payload} />
      <RunSelect payload={payload} />
      <RunStrip payload={payload} />
      <RestSwitch payload={payload} />
      {rows.filtered.value && (
        <Button class="etv-quiet" onClick={() => rows.clearFilters()}>
          <Icon name="close" /> Clear
        </Button>
      )}
      <span class="etv-bar-end">
        <RowCount payload={payload} />
        <ColumnChooser payload={payload} />
      </span>
    </div>
  );
}
