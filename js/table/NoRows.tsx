// What the table says when it has no rows: nothing was compared (and why), or the filter hides all.
import type { JSX } from "preact";
import { formatCount } from "../data/format";
import type { Payload } from "../data/payload";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";

const UNSAID = "No instruction was compared with a reference.";

function NoGaps({ payload }: { payload: Payload }): JSX.Element {
  const { filter } = useApp().store.traits;
  const { notes } = payload.summary;
  return (
    <div class="etv-empty" role="status">
      <p class="etv-empty-title">No gaps to show</p>
      {(notes.length > 0 ? notes : [UNSAID]).map((note) => (
        <p key={note}>{note}</p>
      ))}
      {payload.rows > 0 && (
        <Button onClick={() => (filter.value = "is:any")}>
          List the {formatCount(payload.rows)} instructions
        </Button>
      )}
    </div>
  );
}

export function NoRows({ payload }: { payload: Payload }): JSX.Element {
  const { rows } = useApp();
  if (payload.compared === 0) return <NoGaps payload={payload} />;
  return (
    <div class="etv-empty" role="status">
      <p class="etv-empty-title">No row passes the filters</p>
      <Button onClick={() => rows.clearFilters()}>Clear filters</Button>
    </div>
  );
}
