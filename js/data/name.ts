// Names of operators and lines, where there is no room for all of one: the end tells most, so the beginning gives way.
// Of "attention.self · linear +5" that is the module's path, of "modeling.py:418" the file's name.

interface Name {
  /** What is shortened, from the left. */
  place: string;
  /** What stays. */
  kept: string;
}

const LEAST = 3;

export function splitName(text: string): Name {
  const at = text.indexOf(" · ");
  const end = at > 0 ? at : (/:\d+$/.exec(text)?.index ?? 0);
  return { place: text.slice(0, end), kept: text.slice(end) };
}

/** What a name says with the whole path of its module: "encoder.layer.3.attention.self · linear +5". */
export function wholeName(text: string, module: string): string {
  const { place, kept } = splitName(text);
  return place && module.endsWith(place) ? module + kept : text;
}

/** A name in so many letters: its place is cut on the left, and left out where nothing of it would be legible. */
export function shortName(text: string, letters: number): string {
  if (text.length <= letters) return text;
  const { place, kept } = splitName(text);
  const room = letters - kept.length - 1;
  if (room >= LEAST) return `…${place.slice(-room)}${kept}`;
  const rest = place ? kept.replace(/^ · /, "") : kept;
  return rest.length > letters ? `${rest.slice(0, letters - 1)}…` : rest;
}
