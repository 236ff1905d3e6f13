// What a cell shows: the view, or a line that says that it is in a side panel; a hint where a side
// panel was asked for and the viewer has none.
import type { JSX } from "preact";
import { useRef } from "preact/hooks";
import type { App } from "../state/app";
import type { Place } from "../state/panelHost";
import type { Placement } from "../state/placement";
import { Button } from "../ui/Button";
import { Icon } from "../ui/Icon";
import { keepKeys } from "../ui/keys";
import { useScheme } from "../ui/scheme";
import { EtvizApp } from "./EtvizApp";

const HINT =
  "Side panels need JupyterLab (or Notebook 7) with etviz installed where it runs; the view is shown here instead.";

function Elsewhere({ place, placement }: { place: Place; placement: Placement }): JSX.Element {
  const ref = useRef<HTMLDivElement>(null);
  useScheme(ref);
  return (
    <div class="etviz etv-elsewhere" ref={ref} onKeyDown={keepKeys}>
      <Icon name="panel" />
      <span>
        <b>{place.title}</b> is in the {place.area} side panel
      </span>
      <Button onClick={() => placement.reveal()}>Show it</Button>
      <Button onClick={() => placement.back()}>Bring it back here</Button>
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
