// All keys and commands, over the view.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { COMMANDS, type Command } from "../state/commands";
import { IconButton } from "../ui/Button";
import { useApp } from "../ui/context";

const MOVES: [string, string][] = [
  ["↑ ↓", "Row by row in the table, node by node in the tree"],
  ["← →", "Along the profile and the charts; close and open a node"],
  ["Enter", "Select what is pointed at; sort by a column head"],
  ["Shift-click", "Sort by a second column"],
];

function Line({ keys, title, id }: { keys: string; title: string; id?: string }): JSX.Element {
  return (
    <li class="etv-help-line">
      <kbd class="etv-key-cap">{keys}</kbd>
      <span>{title}</span>
      {id && <code>{id}</code>}
    </li>
  );
}

function example({ id, argument }: Command): string {
  return argument ? `${id} ${argument}` : id;
}

export function Help(): JSX.Element | null {
  const { help } = useApp().view;
  const dialog = useRef<HTMLDivElement>(null);
  const open = help.value;
  useEffect(() => {
    if (!open) return;
    const before = dialog.current?.ownerDocument.activeElement as HTMLElement | null;
    dialog.current?.focus();
    return () => before?.focus?.();
  }, [open]);
  if (!open) return null;
  const close = (): void => void (help.value = false);
  return (
    <div class="etv-help-shade" onPointerDown={(event) => event.target === event.currentTarget && close()}>
      <div
        class="etv-help"
        role="dialog"
        aria-modal="true"
        aria-label="Keys and commands"
        tabIndex={-1}
        ref={dialog}
        onKeyDown={(event) => {
          if (event.key !== "Escape") return;
          event.stopPropagation();
          close();
        }}
      >
        <div class="etv-help-head">
          <h2>Keys and commands</h2>
          <IconButton class="etv-quiet etv-square" label="Close" icon="close" onClick={close} />
        </div>
        <ul class="etv-help-list">
          {MOVES.map(([keys, title]) => (
            <Line key={keys} keys={keys} title={title} />
          ))}
          {COMMANDS.map((command) => (
            <Line key={command.id} keys={command.key ?? ""} title={command.title} id={example(command)} />
          ))}
        </ul>
        <p class="etv-help-note">
          The names on the right are for <code>inspection.widget(commands=["row.select 8", "tab.map"])</code>.
        </p>
      </div>
    </div>
  );
}
