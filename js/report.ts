// Entry of the HTML report: the same views over data that is embedded in the page.
// The page holds <script type="application/octet-stream" id="etviz-data">base64</script> and an
// element with the id "etviz"; container.ts says what the data is.
import { mount } from "./mount";
import { readContainer, unpack } from "./state/container";
import { staticSource } from "./state/staticSource";
import { Store } from "./state/store";
import { localTraits } from "./state/traits";

async function open(): Promise<void> {
  const target = document.getElementById("etviz");
  const data = document.getElementById("etviz-data");
  if (!target || !data) return;
  try {
    const report = readContainer(await unpack(data.textContent ?? ""));
    const store = new Store(staticSource(report), localTraits());
    store.loadPayload();
    mount(store, target, true);
  } catch (problem) {
    target.textContent = `The report could not be read: ${String(problem)}`;
  }
}

void open();
