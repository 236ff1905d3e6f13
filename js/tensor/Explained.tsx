// What the kernel explains on request, a table each: constants, a repro, the ladder, a fix. And the note on a row.
import type { JSX } from "preact";
import type { Payload } from "../data/payload";
import { EXPLANATIONS } from "../state/commands";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { CopyButton } from "../ui/CopyButton";
import { Icon } from "../ui/Icon";
import { JobLine } from "../ui/JobLine";
import { Section } from "./Section";
import { FigureTable } from "./tables";

interface Props {
  payload: Payload;
  row: number;
}

export function Explained({ payload, row }: Props): JSX.Element | null {
  const app = useApp();
  const { jobs } = app.store;
  const job = jobs.of("explain");
  const found = app.view.explained.value;
  const offered = EXPLANATIONS.filter(({ name }) => payload.explanations.includes(name));
  if (offered.length === 0) return null;
  const shown = found && (found.row === row || !EXPLANATIONS.some(({ name, ofRow }) => ofRow && name === found.what));
  return (
    <div class="etv-explained">
      <div class="etv-explained-buttons">
        {offered.map(({ name, text, tip }) => (
          <Button key={name} class="etv-quiet" disabled={jobs.busy} data-tip={tip} onClick={() => app.explain(name, row)}>
            {text}
          </Button>
        ))}
      </div>
      {job && (
        <JobLine
          job={job}
          doing={offered.find(({ name }) => name === job.params.what)?.text ?? ""}
          retry={() => app.explain(String(job.params.what), row)}
        />
      )}
      {shown && (
        <Section title={found.title} aside={found.text && <CopyButton text={found.text} what={found.title} />}>
          {found.rows.length > 0 && (
            <FigureTable corner={{ text: found.head[0] }} heads={found.head.slice(1).map((text) => ({ text }))}>
              {found.rows.map(([head, ...cells], at) => (
                <tr key={at}>
                  <th scope="row">{head}</th>
                  {cells.map((cell, k) => (
                    <td key={k}>{cell}</td>
                  ))}
                </tr>
              ))}
            </FigureTable>
          )}
          {found.text && <pre class="etv-explained-text">{found.text}</pre>}
        </Section>
      )}
    </div>
  );
}

/** Written in a notebook, read in a report. */
export function Note({ payload, row }: Props): JSX.Element | null {
  const { source } = useApp().store;
  const text = payload.notes[row] ?? "";
  if (source.kernel) {
    return (
      <textarea
        key={`${row} ${text}`}
        class="etv-note-field"
        rows={Math.min(6, text.split("\n").length)}
        aria-label="Note on this row"
        placeholder="Note; reports carry it"
        value={text}
        onChange={(event) => source.request("note", { row, text: event.currentTarget.value }, () => {})}
      />
    );
  }
  return text ? (
    <p class="etv-note etv-note-read">
      <Icon name="note" />
      <span>{text}</span>
    </p>
  ) : null;
}
