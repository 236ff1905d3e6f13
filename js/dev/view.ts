// For the tests: the widget over a model without a kernel, and a wait for what should appear.
// Views are taken out of the page after each test.
import { onTestFinished } from "vitest";
import { SampleModel, type SampleModelOptions } from "./model";
import { startWidget } from "./widget";

export interface TestView {
  model: SampleModel;
  el: HTMLElement;
  all: (selector: string) => HTMLElement[];
  one: (selector: string) => HTMLElement;
  texts: (selector: string) => string[];
  /** The parameters of the questions that were asked by a method. */
  params: (method: string) => Record<string, unknown>[];
  close: () => void;
}

export interface TestWidget {
  model: SampleModel;
  render: () => Promise<TestView>;
  dispose: () => void;
}

export async function openWidget(options: SampleModelOptions = {}): Promise<TestWidget> {
  const model = new SampleModel({ layers: 2, inside: 3, uncompared: 2, ...options });
  const widget = await startWidget(model);
  const render = async (): Promise<TestView> => {
    const el = document.createElement("div");
    document.body.append(el);
    const unmount = await widget.render(el);
    const all = (selector: string): HTMLElement[] => [...el.querySelectorAll<HTMLElement>(selector)];
    return {
      model,
      el,
      all,
      one: (selector) => {
        const found = all(selector)[0];
        if (!found) throw new Error(`nothing matches ${selector}`);
        return found;
      },
      texts: (selector) => all(selector).map((element) => element.textContent ?? ""),
      params: (method) => model.sent.filter((asked) => asked.method === method).map((asked) => asked.params),
      close: () => {
        unmount();
        el.remove();
      },
    };
  };
  return { model, render, dispose: widget.dispose };
}

export async function openView(options: SampleModelOptions = {}): Promise<TestView> {
  const widget = await openWidget(options);
  const view = await widget.render();
  const { close } = view;
  view.close = () => {
    close();
    widget.dispose();
  };
  onTestFinished(view.close);
  return view;
}

/** A view whose rows are there. */
export async function openReady(options: SampleModelOptions = {}): Promise<TestView> {
  const view = await openView(options);
  await until(() => view.all(".etv-row").length > 0);
  return view;
}

/** Wait until `check` neither throws nor gives false. */
export async function until(check: () => boolean | void, limit = 10_000): Promise<void> {
  const end = Date.now() + limit;
  for (;;) {
    try {
      if (check() !== false) return;
    } catch (problem) {
      if (Date.now() > end) throw problem;
    }
    if (Date.now() > end) throw new Error(`not within ${limit} ms: ${check.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
}

export function press(element: HTMLElement, key: string, more: KeyboardEventInit = {}): void {
  element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more }));
}

export function click(element: HTMLElement, more: MouseEventInit = {}): void {
  element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ...more }));
}

export function type(input: HTMLInputElement, text: string): void {
  input.value = text;
  input.dispatchEvent(new Event("input", { bubbles: true }));
}
