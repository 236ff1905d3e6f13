// A name in a line of code letters, which gives way in its place where there is no room for all of it.
import type { JSX } from "preact";
import { splitName } from "../data/name";

interface Props {
  text: string;
  /** How many letters stand beside it in the line. */
  beside?: number;
}

/** The letters of the place that are shown are those that the others leave: every letter is as wide as the next. */
export function Name({ text, beside = 0 }: Props): JSX.Element {
  const { head, place, kept } = splitName(text);
  const others = kept.length + beside;
  return (
    <>
      {head && (
        <span class="etv-place-head" style={{ "--etv-kept": others + head.length }}>
          {head}
        </span>
      )}
      {place && (
        <span class="etv-place" style={{ "--etv-kept": others, "--etv-head": head.length }}>
          <bdi>{place}</bdi>
        </span>
      )}
      {kept}
    </>
  );
}
