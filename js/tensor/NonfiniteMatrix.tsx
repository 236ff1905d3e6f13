// How many elements are finite, infinite or NaN in reference (down) and runtime (across).
import type { JSX } from "preact";
import type { Nonfinite } from "../state/contract";
import { formatCount } from "../state/format";
import { Section } from "./Section";

export function NonfiniteMatrix({ nonfinite }: { nonfinite: Nonfinite }): JSX.Element {
  const { classes, counts } = nonfinite;
  return (
    <Section title="Non-finite values" hint="elements, reference ↓ runtime →">
      <table class="etv-figures">
        <thead>
          <tr>
            <th scope="col" class="etv-tone-reference">
              reference
            </th>
            {classes.map((name) => (
              <th key={name} scope="col" class="etv-tone-runtime">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {classes.map((name, down) => (
            <tr key={name}>
              <th scope="row" class="etv-tone-reference">
                {name}
              </th>
              {counts[down].map((count, across) => (
                <td
                  key={classes[across]}
                  class={count === 0 ? "etv-unknown" : undefined}
                  data-differs={count > 0 && down !== across ? true : undefined}
                >
                  {formatCount(count)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Section>
  );
}
