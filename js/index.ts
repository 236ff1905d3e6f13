// The anywidget entry: a factory, called once a model, so that all views of one model share a store.
import type { AnyModel, Initialize, Render } from "@anywidget/types";
import { mount } from "./mount";
import { type MessageModel, kernelSource } from "./state/rpc";
import { Store } from "./state/store";
import { type TraitModel, modelTraits } from "./state/traits";

interface Session {
  store: Store;
  dispose: () => void;
}

function openSession(model: AnyModel): Session {
  const source = kernelSource(model as unknown as MessageModel);
  const bound = modelTraits(model as unknown as TraitModel);
  const store = new Store(source, bound.traits);
  // The first message decides on which thread the kernel answers: send it before it is busy.
  source.request("hello", {}, () => {});
  store.loadPayload();
  return {
    store,
    dispose: () => {
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
      if (session) return mount(session.store, el, false);
      const own = openSession(model);
      const unmount = mount(own.store, el, false);
      return () => {
        unmount();
        own.dispose();
      };
    },
  };
}
