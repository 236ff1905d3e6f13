// What stands in for the tensors while they are on their way, or when they cannot come.
import type { JSX } from "preact";
import type { WireError } from "../state/contract";
import { NOT_IN_REPORT } from "../state/staticSource";
import { Icon, LevelIcon } from "../ui/Icon";

/** Keeps the room of the charts; becomes visible only when the wait is long enough to notice. */
export function Placeholder(): JSX.Element {
  return (
    <div class="etv-placeholder" role="status" aria-label="Loading the tensors">
      <span class="etv-bone etv-bone-short" />
      <span class="etv-bone etv-bone-chart" />
      <span class="etv-bone etv-bone-short" />
      <span class="etv-bone etv-bone-chart" />
    </div>
  );
}

/** The same for one chart. */
export function ChartPlaceholder(): JSX.Element {
  return (
    <div class="etv-placeholder etv-placeholder-chart" role="status" aria-label="Loading the chart">
      <span class="etv-bone etv-bone-chart" />
    </div>
  );
}

export function Failure({ error, retry }: { error: WireError; retry: () => void }): JSX.Element {
  if (error.type === NOT_IN_REPORT) {
    return (
      <p class="etv-status" data-level="unknown">
        {error.message}
      </p>
    );
  }
  return (
    <div class="etv-failure" role="alert">
      <p class="etv-failure-text">
        <LevelIcon level="bad" />
        <span>{error.message}</span>
      </p>
      <button type="button" class="etv-button" onClick={retry}>
        <Icon name="retry" /> Retry
      </button>
    </div>
  );
}
