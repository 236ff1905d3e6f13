// The whole view while the payload is on its way, and when it cannot come.
import type { JSX } from "preact";
import type { WireError } from "../state/contract";
import { Icon, LevelIcon } from "../ui/Icon";

export function Loading(): JSX.Element {
  return (
    <div class="etv-loading" role="status" aria-label="Loading">
      <span class="etv-bone etv-bone-verdict" />
      <span class="etv-bone etv-bone-facts" />
      <div class="etv-bones">
        <span class="etv-bone" />
        <span class="etv-bone" />
        <span class="etv-bone" />
      </div>
    </div>
  );
}

export function LoadFailed({ error, retry }: { error: WireError; retry: () => void }): JSX.Element {
  return (
    <div class="etv-failed" role="alert">
      <p class="etv-empty-title">
        <LevelIcon level="bad" /> The inspection could not be shown
      </p>
      <p class="etv-failed-message">{error.message}</p>
      <button type="button" class="etv-button" onClick={retry}>
        <Icon name="retry" /> Retry
      </button>
    </div>
  );
}
