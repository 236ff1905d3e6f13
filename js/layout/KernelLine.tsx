// A grey line on top while the kernel has no time for the view or is gone, or the newest data can't be shown.
import type { JSX } from "preact";
import { RetryButton } from "../ui/Button";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";

const SAID = {
  busy: "The kernel is busy; this view follows.",
  gone: "The kernel was restarted or shut down. Run the cell again; until then the screen stays as it is.",
};

export function KernelLine(): JSX.Element | null {
  const { store } = useApp();
  const state = store.source.state.value;
  const outdated = store.outdated.value;
  if (state === "ready" && !outdated) return null;
  return (
    <div class="etv-kernel" role="status" data-kernel={state}>
      <Icon name={state === "busy" ? "clock" : "note"} />
      <span>
        {state === "ready" ? `What is on screen is not the newest: ${outdated?.message}` : SAID[state]}
      </span>
      {state === "ready" && <RetryButton retry={() => store.loadPayload()} />}
    </div>
  );
}
