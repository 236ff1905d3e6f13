// The ladder of a port, from the original model to the runtime: a row for each stage, the first that differs marked.
import type { JSX } from "preact";
import { visibleText } from "../data/tokens";
import type { PortCard } from "../kernel/contract";

export function PortTable({ card }: { card: PortCard }): JSX.Element {
  const [verdict, ...more] = card.verdict.split("\n");
  return (
    <details class="etv-port" open={card.first !== null}>
      <summary>{visibleText(verdict)}</summary>
      <table>
        <thead>
          <tr>
            {card.head.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {card.rows.map((cells, row) => (
            <tr key={cells[0]} data-first={row === card.first ? true : undefined}>
              {cells.map((cell, at) => (at === 0 ? <th key={at} scope="row">{cell}</th> : <td key={at}>{visibleText(cell)}</td>))}
            </tr>
          ))}
        </tbody>
      </table>
      {more.map((line) => (
        <p key={line}>{visibleText(line)}</p>
      ))}
    </details>
  );
}
