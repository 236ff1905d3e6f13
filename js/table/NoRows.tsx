// What the table says when it has no rows: nothing was compared (and why), or the filter hides all.
import type { JSX } from "preact";
import { STATUSES } from "../state/filter";
import { formatCount } from "../state/format";
import { useApp } from "../ui/context";
import { clearFilters } from "./filters";

export function NoRows(): JSX.Element | null {
  const app = useApp();
  const payload = app.payload.value;
  if (!payload) return null;
  if (payload.compared === 0) {
    const { notes } = payload.summary;
    return (
      <div class="etv-empty" role="status">
        <p class="etv-empty-title">No gaps to show</p>
        {notes.length > 0 ? (
          notes.map((note) => <p key={note}>{note}</p>)
        ) : (
          <p>No instruction was compared with a reference.</p>
        )}
        {payload.rows > 0 && (
          <button
            type="button"
            class="etv-button"
            onClick={() => (app.view.statuses.value = new Set(STATUSES))}
          >
            List the {formatCount(payload.rows)} instructions
          </button>
        )}
      </div>
    );
  }
  return (
    <div class="etv-empty" role="status">
      <p class="etv-empty-title">No row passes the filters</p>
      <button type="button" class="etv-button" onClick={() => clearFilters(app)}>
        Clear filters
      </button>
    </div>
  );
}
