// What is drawn between the header and the panes: the error along the program, or what the runtime timed.
import type { JSX } from "preact";
import type { Payload } from "../data/payload";
import { useApp } from "../ui/context";
import { Switches } from "../ui/Switches";
import type { Strip } from "../state/view";

const CHOICES: { name: Strip; text: string; tip: string }[] = [
  { name: "error", text: "Error", tip: "The error along the program (m)" },
  { name: "time", text: "Time", tip: "The timed events of one execution (m)" },
];

/** Nothing where there is only one of the two. */
export function StripSwitch({ payload }: { payload: Payload }): JSX.Element | null {
  const { profile, view } = useApp();
  if (!payload.timed || !profile.value) return null;
  return (
    <Switches
      label="Between header and panes"
      choices={CHOICES}
      value={view.strip.value}
      onChange={(strip) => (view.strip.value = strip)}
    />
  );
}
