// The verdict in words, the facts as chips (some jump to a row), who caused the error, and the notes.
import type { JSX } from "preact";
import type { Fact, Finding } from "../kernel/contract";
import type { Payload } from "../data/payload";
import { IconButton } from "../ui/Button";
import { useApp } from "../ui/context";
import { Icon, LevelIcon } from "../ui/Icon";
import { AttributeButton, AttributionBar } from "./Attribution";

const LEVEL_NAMES = { ok: "OK", warn: "Warning", bad: "Problem", unknown: "Not known" };

/** One fact: label, value and level; a button when it points to a row. */
function FactChip({ fact: { label, value, level, row, hint } }: { fact: Fact }): JSX.Element {
  const { selection } = useApp();
  const content = (
    <>
      {(level === "warn" || level === "bad") && <LevelIcon level={level} />}
      <span class="etv-chip-label">{label}</span>
      <span class="etv-chip-value">{value}</span>
    </>
  );
  const shared = { "data-level": level, "data-tip": hint || undefined };
  return row === null ? (
    <span class="etv-chip" {...shared} tabIndex={hint ? 0 : undefined}>
      {content}
    </span>
  ) : (
    <button type="button" class="etv-chip etv-chip-link" {...shared} onClick={() => selection.selectRow(row)}>
      {content}
    </button>
  );
}

/** What to know first; a press goes to its row. */
function FindingLine({ finding }: { finding: Finding }): JSX.Element {
  const { selection } = useApp();
  return (
    <button
      type="button"
      class="etv-finding"
      data-level={finding.level}
      onClick={() => selection.selectRow(finding.row)}
    >
      {finding.text}
    </button>
  );
}

/** Moves a cell's view to the side panel; only where there is one. */
function PanelButton({ title }: { title: string }): JSX.Element | null {
  const { placement } = useApp();
  if (!placement?.available.value) return null;
  return (
    <IconButton
      class="etv-quiet etv-square etv-to-panel"
      label="Move to the side panel"
      icon="panel"
      data-tip="Move to the side panel; with Shift to the left one"
      onClick={(event) => placement.moveTo(event.shiftKey ? "left" : "right", title)}
    />
  );
}

export function Header({ payload }: { payload: Payload }): JSX.Element {
  const { summary, title } = payload;
  return (
    <header class="etv-header" data-level={summary.level}>
      <div class="etv-verdict">
        <LevelIcon level={summary.level} />
        <span class="etv-verdict-text">
          <span class="etv-hidden">{LEVEL_NAMES[summary.level]}: </span>
          {summary.verdict}
        </span>
        <span class="etv-title" data-tip={title} data-tip-clipped>
          {title}
        </span>
        <PanelButton title={title} />
      </div>
      {summary.finding && <FindingLine finding={summary.finding} />}
      {summary.facts.length > 0 && (
        <ul class="etv-facts" aria-label="Facts">
          {summary.facts.map((fact) => (
            <li key={fact.label}>
              <FactChip fact={fact} />
            </li>
          ))}
          <li>
            <AttributeButton payload={payload} />
          </li>
        </ul>
      )}
      <AttributionBar payload={payload} />
      {summary.notes.map((note) => (
        <p key={note} class="etv-note">
          <Icon name="note" />
          <span>{note}</span>
        </p>
      ))}
    </header>
  );
}
