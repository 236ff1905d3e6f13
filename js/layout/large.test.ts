// @vitest-environment happy-dom
// Full screen is what a press asks for, and nothing else.
import { act } from "preact/test-utils";
import { expect, test, vi } from "vitest";
import { openReady, until } from "../dev/view";
import { PROTOCOL, type PanelHost, offerHost } from "../state/panelHost";

const HOST: PanelHost = {
  protocol: PROTOCOL,
  open: () => ({ update: () => {}, reveal: () => {}, close: () => {} }),
  nextSerial: () => 1,
};

test("a view that comes back from the side panel does not go to full screen again", async () => {
  const asked = vi.fn(() => Promise.resolve());
  HTMLElement.prototype.requestFullscreen = asked;
  offerHost(HOST);
  const view = await openReady();
  view.one('[aria-label="Open large"]').click();
  await until(() => asked.mock.calls.length === 1);
  await until(() => view.all('[aria-label="Move to the side panel"]').length > 0);
  view.one('[aria-label="Move to the side panel"]').click();
  await until(() => view.all(".etv-elsewhere").length > 0);
  const back = view.all("button").find((button) => button.textContent === "Bring it back here");
  // With its effects.
  await act(() => back?.click());
  expect(view.all(".etv-row").length).toBeGreaterThan(0);
  expect(asked).toHaveBeenCalledTimes(1);
});
