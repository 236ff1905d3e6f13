// A name in a line of code letters, which gives way on the left where there is no room for all of it; which output it is stays.
import type { JSX } from "preact";
import { splitName } from "../data/name";

interface Props {
  text: string;
  /** How many letters stand beside it in the line. */
  beside?: number;
}

/** The letters of the place that are shown are those that the others leave: every letter is as wide as the next. */
export function Name({ text, beside = 0 }: Props): JSX.Element {
  const { place, kept } = splitName(text);
  const output = / \[\d+\]$/.exec(kept)?.[0] ?? "";
  return (
    <>
      {place && (
        <span class="etv-place" style={{ "--etv-kept": kept.length + beside }}>
          <bdi>{place}</bdi>
        </span>
      )}
      {output ? (
        <span class="etv-word" style={{ "--etv-kept": output.length + beside }}>
          {kept.slice(0, -output.length)}
        </span>
      ) : (
        kept
      )}
      {output}
    </>
  );
}
