// The few icons, drawn on a 16 px grid in the colour of the text around them.
import type { JSX } from "preact";
import type { Level } from "../kernel/contract";

const PATHS = {
  ok: "M3 8.5l3.2 3.2L13 4.8",
  warn: "M8 2.2L14.3 13.4H1.7zM8 6.2v3.6M8 11.6v.2",
  bad: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM5.8 5.8l4.4 4.4M10.2 5.8l-4.4 4.4",
  unknown:
    "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM6.2 6.3a1.8 1.8 0 1 1 2.6 1.6c-.6.3-.8.6-.8 1.3M8 11.2v.2",
  chevron: "M6 3.5L10.5 8L6 12.5",
  down: "M3.5 6L8 10.5L12.5 6",
  columns: "M2.5 3h11v10h-11zM6.2 3v10M9.8 3v10",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.3V2.5h-8v8h2.8",
  close: "M4 4l8 8M12 4l-8 8",
  expand: "M4 6l4-4 4 4M4 10l4 4 4-4",
  collapse: "M4 2.5l4 4 4-4M4 13.5l4-4 4 4",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 0 0 0-9zM10.3 10.3L14 14",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2.2v3h-3",
  note: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 7.2v4M8 4.8v.2",
  zoom: "M7 2.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 0 0 0-9zM10.3 10.3L14 14M7 5v4M5 7h4",
  inside: "M4 2.5v6.5h7.5M8.8 6.2L11.6 9l-2.8 2.8",
  stop: "M4 4h8v8H4z",
  share: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 1.8V8l4.6 4.2",
  panel: "M2 3h12v10H2zM9.5 3v10M11 5.5h1.5M11 7.5h1.5",
  large: "M2.5 6V2.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  pin: "M6 2h4l-.6 4.2L12 9H4l2.6-2.8zM8 9v5",
  clock: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 4.5V8l2.6 1.6",
  filter: "M2.5 3.5h11L9.3 8.6v4.2l-2.6-1.3V8.6z",
};

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }): JSX.Element {
  return (
    <svg class="etv-icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={PATHS[name]} />
    </svg>
  );
}

export function LevelIcon({ level }: { level: Level }): JSX.Element {
  return (
    <span class={`etv-level etv-level-${level}`}>
      <Icon name={level} />
    </span>
  );
}
