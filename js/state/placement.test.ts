// @vitest-environment happy-dom
// A view and its side panel: what the trait says is done, what the person does is said to the trait.
import { afterEach, expect, test } from "vitest";
import { localTraits } from "../kernel/traits";
import {
  type PanelHandle,
  type PanelHost,
  type PanelRequest,
  type Place,
  PROTOCOL,
  asPlace,
  offerHost,
} from "./panelHost";
import { placeView } from "./placement";

const PLACE: Place = { title: "model", area: "right", pinned: false, serial: 1 };

class FakeHost implements PanelHost {
  readonly protocol: number = PROTOCOL;
  readonly requests: PanelRequest[] = [];
  readonly done: string[] = [];
  refuses = false;

  open(request: PanelRequest): PanelHandle {
    this.requests.push(request);
    if (this.refuses) request.closed();
    return {
      update: (place) => void this.done.push(`update ${place.area}`),
      reveal: () => void this.done.push("reveal"),
      close: () => void this.done.push("close"),
    };
  }

  nextSerial(): number {
    return 7;
  }
}

class OldHost extends FakeHost {
  override readonly protocol = PROTOCOL - 1;
}

const opened: ReturnType<typeof placeView>[] = [];

afterEach(() => {
  for (const view of opened.splice(0)) view.dispose();
  offerHost(new OldHost());
});

function place(host: FakeHost | null): {
  traits: ReturnType<typeof localTraits>;
  view: ReturnType<typeof placeView>;
} {
  if (host) offerHost(host);
  const traits = localTraits();
  const view = placeView(traits, null, () => () => {});
  view.connected(true);
  opened.push(view);
  return { traits, view };
}

test("a place in the trait opens a panel, null closes it", () => {
  const host = new FakeHost();
  const { traits } = place(host);
  expect(host.requests).toHaveLength(0);
  traits.panel.value = PLACE;
  expect(host.requests.map((request) => request.place)).toEqual([PLACE]);
  traits.panel.value = { ...PLACE, area: "left" };
  traits.panel.value = null;
  expect(host.done).toEqual(["update left", "close"]);
});

test("a host that comes later is used", () => {
  const { traits, view } = place(null);
  traits.panel.value = PLACE;
  expect(view.available.value).toBe(false);
  const host = new FakeHost();
  offerHost(host);
  expect(view.available.value).toBe(true);
  expect(host.requests).toHaveLength(1);
});

test("no panel opens before the kernel has answered", () => {
  const host = new FakeHost();
  offerHost(host);
  const traits = localTraits();
  traits.panel.value = PLACE;
  const view = placeView(traits, null, () => () => {});
  opened.push(view);
  expect(host.requests).toHaveLength(0);
  expect(view.place.value).toEqual(PLACE);
  view.connected(false);
  expect(view.place.value).toBeNull();
  view.connected(true);
  expect(host.requests).toHaveLength(1);
});

test("a host of another version is none", () => {
  const { traits, view } = place(new OldHost());
  traits.panel.value = PLACE;
  expect(view.available.value).toBe(false);
});

test("what the person does to the panel is in the trait", () => {
  const host = new FakeHost();
  const { traits, view } = place(host);
  view.moveTo("left", "model");
  expect(traits.panel.value).toEqual({ ...PLACE, area: "left", serial: 7 });
  const [request] = host.requests;
  request?.moved({ ...PLACE, pinned: true });
  expect(traits.panel.value).toEqual({ ...PLACE, pinned: true });
  request?.closed();
  expect(traits.panel.value).toBeNull();
  expect(host.done).toEqual(["update right"]);
});

test("a panel that a newer view has is left to it", () => {
  const host = new FakeHost();
  host.refuses = true;
  const { traits } = place(host);
  traits.panel.value = PLACE;
  expect(traits.panel.value).toBeNull();
  expect(host.requests).toHaveLength(1);
});

test("when the kernel is gone the panel closes and the trait stays", () => {
  const host = new FakeHost();
  const { traits, view } = place(host);
  traits.panel.value = PLACE;
  view.connected(false);
  expect(host.done).toEqual(["close"]);
  expect(view.place.value).toBeNull();
  expect(view.available.value).toBe(false);
  expect(traits.panel.value).toEqual(PLACE);
  view.dispose();
  expect(host.done).toEqual(["close"]);
});

test("what is no place is none", () => {
  for (const value of [null, 3, "right", {}, { title: "a", area: "top" }, { area: "left" }])
    expect(asPlace(value)).toBeNull();
  expect(asPlace({ title: "a", area: "left" })).toEqual({
    title: "a",
    area: "left",
    pinned: false,
    serial: 0,
  });
});
