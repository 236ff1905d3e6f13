// The views with made-up data, without Jupyter. ?layers=6250&inside=6 makes 50k rows; &state=empty,
// loading, error, job-error shows the other states; &scheme=dark, &width=480, &shadow=1;
// &attributed=0 and &zoomed=41,43 start with the error explained; &select=41 with a row selected.
import { SampleModel, type SampleModelOptions } from "./model";
import { startWidget } from "./widget";

const query = new URLSearchParams(location.search);
const state = query.get("state") ?? "";
const FAILING: Record<string, string[]> = {
  error: ["payload"],
  "tensor-error": ["tensor"],
  "job-error": ["zoom", "attribution", "error_map"],
};
const options: SampleModelOptions = {
  layers: Number(query.get("layers") ?? 50),
  inside: Number(query.get("inside") ?? 12),
  delay: Number(query.get("delay") ?? 15),
  empty: state === "empty",
  failing: FAILING[state] ?? [],
  silent: state === "loading" ? ["payload"] : state === "tensor-loading" ? ["tensor"] : [],
};
const numbers = (name: string): number[] => query.get(name)?.split(",").map(Number) ?? [];
options.zoomed = numbers("zoomed");
if (query.has("attributed")) options.attributed = Number(query.get("attributed"));
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
if (query.has("height")) model.state.height = Number(query.get("height"));
if (query.has("select")) model.state.selected = Number(query.get("select"));
Object.assign(window, { model });
const widget = await startWidget(model);
await widget.render(target);
