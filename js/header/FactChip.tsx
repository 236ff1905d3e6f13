// One fact: label, value and level; a button when it points to a row.
import type { JSX } from "preact";
import type { Fact } from "../state/contract";
import { useApp } from "../ui/context";
import { LevelIcon } from "../ui/Icon";

export function FactChip({ fact }: { fact: Fact }): JSX.Element {
  const app = useApp();
  const { row } = fact;
  const content = (
    <>
      {(fact.level === "warn" || fact.level === "bad") && <LevelIcon level={fact.level} />}
      <span class="etv-chip-label">{fact.label}</span>
      <span class="etv-chip-value">{fact.value}</span>
    </>
  );
  const tip = fact.hint || undefined;
  if (row === null) {
    return (
      <span class="etv-chip" data-level={fact.level} data-tip={tip} tabIndex={tip ? 0 : undefined}>
        {content}
      </span>
    );
  }
  return (
    <button
      type="button"
      class="etv-chip etv-chip-link"
      data-level={fact.level}
      data-tip={tip}
      onClick={() => app.selectRow(row)}
    >
      {content}
    </button>
  );
}
