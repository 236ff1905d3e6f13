// Entry of the HTML report: the same views over data that is embedded in the page.
// The page holds <script type="application/octet-stream" id="etviz-data">base64</script> and an
// element with the id "etviz"; container.ts says what the data is. What the page shows without a
// script (the summary) stays until the views are there: style/report.css goes by data-etviz-open.
import { readContainer, reportSource, unpack } from "./kernel/container";
import { localTraits } from "./kernel/traits";
import { commandsOfLink } from "./data/link";
import { Store } from "./state/store";
import { mount } from "./mount";

const TOO_OLD = "this browser is too old for it; one of 2024 or later can open it";

async function open(target: HTMLElement, data: HTMLElement): Promise<void> {
  if (typeof DecompressionStream === "undefined") throw new Error(TOO_OLD);
  const bytes = await unpack(data.textContent ?? "");
  // For benchmarks/view.py: from here on it is the view's time.
  performance.mark("etviz-data");
  const report = readContainer(bytes);
  data.remove();
  const traits = localTraits();
  const store = new Store(reportSource(report), traits);
  const follow = (): void => void (traits.commands.value = commandsOfLink(location.hash));
  follow();
  addEventListener("hashchange", follow);
  store.loadPayload();
  const payload = store.payload.peek();
  if (payload.status === "error") throw new Error(payload.error.message);
  mount(store, target, "page");
  document.documentElement.dataset.etvizOpen = "";
  requestAnimationFrame(() => setTimeout(() => performance.mark("etviz-painted")));
}

async function start(): Promise<void> {
  const target = document.getElementById("etviz");
  const data = document.getElementById("etviz-data");
  if (!target || !data) return;
  try {
    await open(target, data);
  } catch (problem) {
    target.setAttribute("role", "alert");
    target.textContent = `The linked view can't be shown: ${problem instanceof Error ? problem.message : problem}`;
  }
}

void start();
