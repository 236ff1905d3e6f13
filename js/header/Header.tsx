// The verdict in words, the facts as chips (some jump to a row), who caused the error, and the notes.
import type { JSX } from "preact";
import { AttributeButton, AttributionBar } from "../attribution/AttributionBar";
import { useApp } from "../ui/context";
import { Icon, LevelIcon } from "../ui/Icon";
import { PanelButton } from "../panel/PanelButton";
import { FactChip } from "./FactChip";

const LEVEL_NAMES = { ok: "OK", warn: "Warning", bad: "Problem", unknown: "Not known" };

export function Header(): JSX.Element | null {
  const app = useApp();
  const payload = app.payload.value;
  if (!payload) return null;
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
