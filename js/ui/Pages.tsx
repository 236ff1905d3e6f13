// The way through a list that has pages instead of a scrollbar.
import type { JSX } from "preact";
import { IconButton } from "./Button";
import { PAGE_ROWS, type WindowedList } from "./window";

export function Pages({ list, count }: { list: WindowedList; count: number }): JSX.Element | null {
  if (!list.paged || count <= PAGE_ROWS) return null;
  const { first, turn } = list.paged;
  const last = Math.min(count, first + PAGE_ROWS);
  return (
    <div class="etv-pages">
      <IconButton label="Rows before" icon="chevron" aria-disabled={first === 0} onClick={() => turn(-1)} />
      <span role="status">{`${first + 1}–${last} of ${count.toLocaleString("en-US")}`}</span>
      <IconButton label="Rows after" icon="chevron" aria-disabled={last === count} onClick={() => turn(1)} />
    </div>
  );
}
