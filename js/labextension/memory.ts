// Remembers for this browser tab which panels were put aside, so that a reload does not bring them to the front.
import type { Place } from "../state/panels";

const PREFIX = "etviz.hidden:";

function key(place: Place): string {
  return PREFIX + place.title;
}

export function wasHidden(place: Place): boolean {
  return sessionStorage.getItem(key(place)) === String(place.serial);
}

export function rememberHidden(place: Place, hidden: boolean): void {
  if (hidden) sessionStorage.setItem(key(place), String(place.serial));
  else sessionStorage.removeItem(key(place));
}
