// The anywidget entry: a factory, called once a model, so that all views of one model share a store.
import type { AnyModel, Initialize, Render } from "@anywidget/types";
import { mount, mountCell } from "./mount";
import { type Placement, placeView } from "./state/placement";
import { type MessageModel, isError, kernelSource } from "./state/rpc";
import { Store } from "./state/store";
import { type TraitModel, modelTraits } from "./state/traits";

interface Session {
  store: Store;
  placement: Placement;
  dispose: () => void;
}

function openSession(model: AnyModel): Session {
  const source = kernelSource(model as unknown as MessageModel);
  const bound = modelTraits(model as unknown as TraitModel);
  const store = new Store(source, bound.traits);
  const placement = placeView(bound.traits, (model.widget_manager as object | undefined) ?? null, (el) =>
    mount(store, el, "panel"),
  );
  // The first message decides on which thread the kernel answers: send it before it is busy.
  source.request("hello", {}, (outcome) => placement.connected(!isError(outcome)));
  store.loadPayload();
  // Said by ipywidgets' base class when the kernel has restarted or gone.
  const disconnect = (): void => placement.connected(false);
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
