// A thin line on top while the kernel works on something longer.
import type { JSX } from "preact";
import { useApp } from "../ui/context";

export function ProgressLine(): JSX.Element | null {
  const progress = useApp().store.progress.value;
  if (!progress) return null;
  const { label, done, total } = progress;
  return (
    <div
      class="etv-progress"
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={total}
      aria-valuenow={done}
      data-tip={`${label}: ${done} of ${total}`}
    >
      <span style={{ width: `${(100 * done) / total}%` }} />
    </div>
  );
}
