// Which columns the table shows, in groups, each with what it means.
import type { JSX } from "preact";
import type { Column } from "../data/columns";
import type { Payload } from "../data/payload";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";
import { Popover } from "../ui/Popover";

function groupsOf(columns: readonly Column[]): [string, Column[]][] {
  const groups = new Map<string, Column[]>();
  for (const column of columns) {
    groups.set(column.group, [...(groups.get(column.group) ?? []), column]);
  }
  return [...groups];
}

function ColumnSwitch({ column, shown }: { column: Column; shown: boolean }): JSX.Element {
  const { columnChoice } = useApp().view;
  const set = (checked: boolean): void => {
    columnChoice.value = new Map(columnChoice.peek()).set(column.name, checked);
  };
  return (
    <label class="etv-column">
      <input
        type="checkbox"
        checked={shown}
        disabled={column.name === "op"}
        onChange={(event) => set(event.currentTarget.checked)}
      />
      <span class="etv-column-name">{column.label}</span>
      <span class="etv-column-about" data-tip={column.description} data-tip-clipped>
        {column.description}
      </span>
    </label>
  );
}

export function ColumnChooser({ payload }: { payload: Payload }): JSX.Element {
  const { rows, view } = useApp();
  const shown = new Set(rows.columns.value.map((column) => column.name));
  return (
    <Popover
      label="Columns"
      class="etv-chooser"
      align="right"
      tip="Choose columns"
      button={
        <>
          <Icon name="columns" /> Columns
        </>
      }
    >
      <div class="etv-groups">
        {groupsOf(payload.columns).map(([group, columns]) => (
          <fieldset key={group} class="etv-group">
            <legend>{group}</legend>
            {columns.map((column) => (
              <ColumnSwitch key={column.name} column={column} shown={shown.has(column.name)} />
            ))}
          </fieldset>
        ))}
      </div>
      <div class="etv-panel-actions">
        <Button onClick={() => (view.columnChoice.value = new Map())}>Default columns</Button>
      </div>
    </Popover>
  );
}
