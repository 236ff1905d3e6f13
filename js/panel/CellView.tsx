// What a cell shows: the view, or a line that says that it is in a side panel; a hint where a side
// panel was asked for and the viewer has none.
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import { EtvizApp } from "../layout/EtvizApp";
import type { App } from "../state/app";
import type { Place } from "../state/panels";
import type { Placement } from "../state/placement";
import { Icon } from "../ui/Icon";
import { useScheme } from "../ui/useScheme";

const HINT =
  "Side panels need JupyterLab (or Notebook 7) with etviz installed where it runs; the view is shown here instead.";

function Elsewhere({ place, placement }: { place: Place; placement: Placement }): JSX.Element {
  const ref = useRef<HTMLDivElement>(null);
  useScheme(ref);
  return (
    <div class="etviz etv-elsewhere" data-lm-suppress-shortcuts="true" ref={ref}>
      <Icon name="panel" />
      <span>
        <b>{place.title}</b> is in the {place.area} side panel
      </span>
      <button type="button" class="etv-button" onClick={() => placement.reveal()}>
        Show it
      </button>
      <button type="button" class="etv-button" onClick={() => placement.back()}>
        Bring it back here
      </button>
    </div>
  );
}

function NoPanel(): JSX.Element {
  const ref = useRef<HTMLDivElement>(null);
  useScheme(ref);
  return (
    <div class="etviz etv-elsewhere" role="note" ref={ref}>
      <Icon name="note" />
      <span>{HINT}</span>
    </div>
  );
}

export function CellView({ app, placement }: { app: App; placement: Placement }): JSX.Element {
  const place = placement.place.value;
  const available = placement.available.value;
  if (place && available) return <Elsewhere place={place} placement={placement} />;
  return (
    <>
      {place && <NoPanel />}
      <EtvizApp app={app} frame="cell" />
    </>
  );
}
