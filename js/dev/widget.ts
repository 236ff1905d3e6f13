// The widget over a model without a kernel, as a host of anywidget starts it.
import etviz from "../index";
import type { SampleModel } from "./model";

type Dispose = () => void;

export interface StartedWidget {
  render: (el: HTMLElement) => Promise<Dispose>;
  dispose: Dispose;
}

type InitializeProps = Parameters<ReturnType<typeof etviz>["initialize"]>[0];
type RenderProps = Parameters<ReturnType<typeof etviz>["render"]>[0];

export async function startWidget(model: SampleModel): Promise<StartedWidget> {
  const widget = etviz();
  const { signal } = new AbortController();
  const dispose = await widget.initialize({ model, signal } as unknown as InitializeProps);
  return {
    render: async (el) => (await widget.render({ model, el, signal } as unknown as RenderProps)) as Dispose,
    dispose: dispose as Dispose,
  };
}
