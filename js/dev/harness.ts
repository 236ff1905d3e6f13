// The views with made-up data, without Jupyter. ?layers=6250&inside=6 makes 50k rows; &state=empty,
// loading, error, silent shows the other states; &scheme=dark, &width=480, &shadow=1.
import etviz from "../index";
import { SampleModel, type SampleModelOptions } from "./model";

const query = new URLSearchParams(location.search);
const state = query.get("state") ?? "";
const options: SampleModelOptions = {
  layers: Number(query.get("layers") ?? 50),
  inside: Number(query.get("inside") ?? 12),
  delay: Number(query.get("delay") ?? 15),
  empty: state === "empty",
  failing: state === "error" ? ["payload"] : state === "tensor-error" ? ["tensor"] : [],
  silent: state === "loading" ? ["payload"] : state === "tensor-loading" ? ["tensor"] : [],
};
const label = query.get("label");
if (label) options.label = label;

document.documentElement.style.colorScheme = query.get("scheme") ?? "light dark";
const frame = document.createElement("div");
frame.style.width = query.has("width") ? `${query.get("width")}px` : "auto";
document.body.append(frame);
const style = document.createElement("link");
style.rel = "stylesheet";
style.href = "out/style.css";
let target: HTMLElement = frame;
if (query.has("shadow")) {
  const shadow = frame.attachShadow({ mode: "open" });
  target = document.createElement("div");
  shadow.append(style, target);
} else {
  document.head.append(style);
}

const model = new SampleModel(options);
Object.assign(window, { model });
const widget = etviz();
const signal = new AbortController().signal;
type InitializeProps = Parameters<typeof widget.initialize>[0];
type RenderProps = Parameters<typeof widget.render>[0];
await widget.initialize({ model, signal } as unknown as InitializeProps);
await widget.render({ model, el: target, signal } as unknown as RenderProps);
