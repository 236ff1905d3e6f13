// @vitest-environment happy-dom
// The picture of the profile is that of the rows that are there.
import { expect, test, vi } from "vitest";
import { openReady, until } from "../dev/view";

/** A canvas' context that counts the ends of stems since it was last cleared. */
function recorder(): { context: CanvasRenderingContext2D; stems: () => number } {
  let stems = 0;
  const known: Record<string, unknown> = {
    measureText: () => ({ width: 10 }),
    clearRect: () => void (stems = 0),
    arc: () => void stems++,
  };
  const context = new Proxy(known, { get: (held, name: string) => held[name] ?? (() => {}), set: () => true });
  return { context: context as unknown as CanvasRenderingContext2D, stems: () => stems };
}

test("what was found inside of a delegate is drawn when it comes", async () => {
  const { context, stems } = recorder();
  const spy = vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockImplementation(() => context as never);
  const view = await openReady({ layers: 1, uncompared: 0 });
  await until(() => stems() > 0);
  const before = stems();
  view.model.options.zoomed = [2];
  view.model.emit("msg:custom", { event: "changed" }, []);
  await until(() => view.all(".etv-row[data-inner]").length === 3);
  await until(() => stems() === before + 3);
  expect(stems()).toBe(before + 3);
  spy.mockRestore();
});
