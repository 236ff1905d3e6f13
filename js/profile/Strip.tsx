// The strip between header and panes.
import type { JSX } from "preact";
import type { Payload } from "../data/payload";
import { useApp } from "../ui/context";
import { ProfileStrip } from "./ProfileStrip";
import { TimelineStrip } from "./TimelineStrip";

export function Strip({ payload }: { payload: Payload }): JSX.Element | null {
  const { profile, view } = useApp();
  const shown = profile.value;
  if (payload.timed && (view.strip.value === "time" || !shown)) return <TimelineStrip payload={payload} timed={payload.timed} />;
  return shown && <ProfileStrip payload={payload} profile={shown} />;
}
