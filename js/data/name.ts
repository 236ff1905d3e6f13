// Names of operators and lines, where there is no room for all of one: the end tells most, so the beginning gives way.
// Of "attention.self · linear +5" that is the module's path, of "modeling.py:418" the file's name.

interface Name {
  /** What tells its place from others, such as the number of a layer; it stays where there is room. */
  head: string;
  /** What is shortened, from the left, with the dot behind it. */
  place: string;
  /** What stays. */
  kept: string;
}

const DOT = " · ";
/** Letters of a place that say anything, with its dot. */
const LEAST = 5;
/** A numbered part, such as the "11." of "11.attention", with something of the place behind it. */
const HEAD = /^\w{0,4}\d\.(?=\w)/;

export function splitName(text: string): Name {
  const at = text.indexOf(DOT);
  const end = at > 0 ? at + DOT.length : (/:\d+$/.exec(text)?.index ?? 0);
  const begin = at > 0 ? (HEAD.exec(text)?.[0].length ?? 0) : 0;
  return { head: text.slice(0, begin), place: text.slice(begin, end), kept: text.slice(end) };
}

/** What a name says with the whole path of its module: "encoder.layer.3.attention.self · linear +5". */
export function wholeName(text: string, module: string): string {
  const { head, place, kept } = splitName(text);
  return place.endsWith(DOT) && module.endsWith(head + place.slice(0, -DOT.length)) ? module + DOT + kept : text;
}

/** A name in so many letters: its place is cut on the left, and left out where nothing of it would be legible. */
export function shortName(text: string, letters: number): string {
  if (text.length <= letters) return text;
  const { head, place, kept } = splitName(text);
  const room = letters - kept.length - 1;
  const rest = room - head.length;
  if (head && rest >= LEAST) return `${head}…${place.slice(-rest)}${kept}`;
  if (place && room >= LEAST) return `…${(head + place).slice(-room)}${kept}`;
  return kept.length > letters ? `${kept.slice(0, letters - 1)}…` : kept;
}
