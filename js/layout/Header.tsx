// One line: the verdict, what to know first, and behind a button the facts (some jump to a row) and the notes.
import type { JSX } from "preact";
import type { Fact, Finding } from "../kernel/contract";
import type { Payload } from "../data/payload";
import { Button, IconButton } from "../ui/Button";
import { useApp } from "../ui/context";
import { Icon, LevelIcon } from "../ui/Icon";
import { Popover } from "../ui/Popover";

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

/** To the whole screen, and back. */
export function LargeButton({ alone }: { alone: boolean }): JSX.Element {
  const { view } = useApp();
  const text = view.isLarge.value ? "Close" : alone ? "" : "Open large";
  return (
    <Button
      class="etv-quiet"
      aria-label={text || "Full screen"}
      data-tip={view.isLarge.value ? "Leave full screen (f or Esc)" : "Full screen (f)"}
      onClick={() => void view.large.value++}
    >
      <Icon name="large" /> {text}
    </Button>
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

/** The facts and the notes; the button says how many of them want a look. */
function Facts({ payload }: { payload: Payload }): JSX.Element | null {
  const { facts, notes } = payload.summary;
  const loud = facts.filter(({ level }) => level === "warn" || level === "bad");
  const worst = loud.some(({ level }) => level === "bad") ? "bad" : "warn";
  if (facts.length + notes.length === 0) return null;
  return (
    <Popover
      label="Facts"
      class="etv-facts-popover"
      align="right"
      tip={[...facts.map(({ label, value }) => `${label}: ${value}`), ...notes].join("\n")}
      button={
        <>
          {loud.length > 0 && <LevelIcon level={worst} />}
          Facts
          {notes.length > 0 && ` · ${notes.length} ${notes.length === 1 ? "note" : "notes"}`}
        </>
      }
    >
      <ul class="etv-facts" aria-label="Facts">
        {facts.map((fact) => (
          <li key={fact.label}>
            <FactChip fact={fact} />
          </li>
        ))}
      </ul>
      {notes.map((note) => (
        <p key={note} class="etv-note">
          <Icon name="note" />
          <span>{note}</span>
        </p>
      ))}
    </Popover>
  );
}

/** `alone`: the view is the whole page, and the verdict its heading. */
export function Header({ payload, alone }: { payload: Payload; alone: boolean }): JSX.Element {
  const Heading = alone ? "h1" : "h2";
  const { view } = useApp();
  const { summary, title } = payload;
  const [, verdict, details] = /^(.*?)(?: (\(.*\)\.?))?$/s.exec(summary.verdict) ?? ["", summary.verdict];
  return (
    <div class="etv-header" data-level={summary.level}>
      <LevelIcon level={summary.level} />
      <div class="etv-said" role="status">
        <Heading class="etv-verdict">
          <span class="etv-hidden">{LEVEL_NAMES[summary.level]}: </span>
          {verdict}
          {details && <span class="etv-verdict-details"> {details}</span>}
        </Heading>
        {summary.finding && <FindingLine finding={summary.finding} />}
        {payload.compared === 0 && <p class="etv-finding">{summary.notes[0]}</p>}
      </div>
      <span class="etv-title" data-tip={title} data-tip-clipped>
        {title}
      </span>
      <div class="etv-header-buttons">
        <Facts payload={payload} />
        <Button
          class="etv-quiet etv-square"
          aria-label="All keys and commands"
          data-tip="All keys and commands (?)"
          onClick={() => (view.help.value = true)}
        >
          ?
        </Button>
        <LargeButton alone={alone} />
        <PanelButton title={title} />
      </div>
    </div>
  );
}
