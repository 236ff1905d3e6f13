// The anywidget entry: a factory, called once a model, so that all views of one model share a store.
import type { AnyModel, Initialize, Render } from "@anywidget/types";
import type { WireHello, WirePayload } from "./kernel/contract";
import { type Answer, type MessageModel, isError, kernelSource } from "./kernel/source";
import { type TraitModel, modelTraits } from "./kernel/traits";
import { type Placement, placeView } from "./state/placement";
import { Store } from "./state/store";
import { mount, mountCell } from "./mount";

interface Session {
  store: Store;
  placement: Placement;
  dispose: () => void;
}

/** What the viewer knows of the kernel; JupyterLab's widget manager has it, others may not. */
interface Manager {
  kernel?: { status?: string } | null;
}

/** The payload that came with the model, as a part of its state. */
function openingOf(model: AnyModel): Answer<WirePayload> | null {
  const opening = model.get("_opening") as Partial<Answer<WirePayload>> | null | undefined;
  const { result, buffers } = opening ?? {};
  return result && buffers ? { result, buffers } : null;
}

function openSession(model: AnyModel): Session {
  const manager = (model.widget_manager as (object & Manager) | undefined) ?? null;
  const isIdle = (): boolean => manager?.kernel === null || manager?.kernel?.status === "idle";
  const source = kernelSource(model as unknown as MessageModel, undefined, isIdle);
  const bound = modelTraits(model as unknown as TraitModel);
  const store = new Store(source, bound.traits);
  const placement = placeView(bound.traits, manager, (el) => mount(store, el, "panel"));
  const opening = openingOf(model);
  const shown = opening !== null && store.show(opening) ? (opening.result.changes ?? 0) : null;
  // The first message decides on which thread the kernel answers: send it before it is busy.
  source.request("hello", {}, (outcome) => {
    placement.connected(!isError(outcome));
    if (isError(outcome) || shown === null) return;
    if ((outcome.result as WireHello).changes !== shown) store.loadPayload();
  });
  if (shown === null) store.loadPayload();
  // Said by ipywidgets' base class when the kernel has restarted or gone.
  const disconnect = (): void => {
    placement.connected(false);
    source.lost();
  };
  model.on("comm_live_update", disconnect);
  return {
    store,
    placement,
    dispose: () => {
      model.off("comm_live_update", disconnect);
      placement.dispose();
      bound.dispose();
      source.dispose();
    },
  };
}

export default function etviz(): { initialize: Initialize; render: Render } {
  let session: Session | null = null;
  return {
    initialize({ model }) {
      session = openSession(model);
      return () => {
        session?.dispose();
        session = null;
      };
    },
    render({ model, el }) {
      if (session) return mountCell(session.store, el, session.placement);
      const own = openSession(model);
      const unmount = mountCell(own.store, el, own.placement);
      return () => {
        unmount();
        own.dispose();
      };
    },
  };
}
