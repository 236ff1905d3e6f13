// Names of operators and lines, where there is no room for all of one: the end tells most, so the beginning gives way.
// Of "attention.self · linear +5" that is the module's path, of "modeling.py:418" the file's name.

interface Name {
  /** What is shortened, from the left, with the dot behind it. */
  place: string;
  /** What stays. */
  kept: string;
}

const DOT = " · ";
/** Letters of a place that say anything, with its dot. */
const LEAST = 5;

export function splitName(text: string): Name {
  const at = text.indexOf(DOT);
  const end = at > 0 ? at + DOT.length : (/:\d+$/.exec(text)?.index ?? 0);
  return { place: text.slice(0, end), kept: text.slice(end) };
}

/** What a name says with the whole path of its module: "encoder.layer.3.attention.self · linear +5". */
export function wholeName(text: string, module: string): string {
  const { place, kept } = splitName(text);
  return place.endsWith(DOT) && module.endsWith(place.slice(0, -DOT.length)) ? module + DOT + kept : text;
}

/** A name in so many letters: its place is cut on the left, and left out where nothing of it would be legible. */
export function shortName(text: string, letters: number): string {
  if (text.length <= letters) return text;
  const { place, kept } = splitName(text);
  const room = letters - kept.length - 1;
  if (place && room >= LEAST) return `…${place.slice(-room)}${kept}`;
  return kept.length > letters ? `${kept.slice(0, letters - 1)}…` : kept;
}
