// The profile: program order, module bands, and peaks that no number of pixels hides.
import { expect, test } from "vitest";
import { samplePayload } from "../dev/samplePayload";
import { type NumberColumn, textAt } from "./columns";
import { decodePayload } from "./payload";
import { bandText, bandsOf, heightOf, peaksOf, profileOf, spanQuery } from "./profile";

const sample = { layers: 50, uncompared: 0 };
const plain = decodePayload(samplePayload(sample));
const call = plain.worst("severity", 1000).find((row) => plain.text("kind", row) === "delegate") as number;
const payload = decodePayload(samplePayload({ ...sample, zoomed: [call] }));
const profile = profileOf(payload);
const introduced = (payload.column("introduced_severity") as NumberColumn).values;

test("every compared row has a place, in the order of the instructions; what is inside comes before its delegate", () => {
  expect(profile.rows).toHaveLength(payload.compared);
  const at = [...profile.rows].map((row) => payload.number("instruction", row));
  expect(at).toEqual([...at].sort((a, b) => a - b));
  const inner = [...profile.rows].filter((row) => payload.zooms.isInner(row));
  expect(inner.length).toBeGreaterThan(0);
  for (const row of inner) expect(profile.places[row]).toBeLessThan(profile.places[call]);
  profile.rows.forEach((row, place) => expect(profile.places[row]).toBe(place));
});

test.each([7, 100, 5000])("in %i columns of pixels the worst row is still the highest peak", (columns) => {
  const { most, at } = peaksOf(profile, introduced, null, columns);
  const known = introduced.filter((value) => !Number.isNaN(value));
  const highest = Math.max(...most.filter((value) => !Number.isNaN(value)));
  expect(highest).toBe(Math.max(...known));
  most.forEach((value, k) => {
    if (at[k] >= 0) expect(introduced[profile.rows[at[k]]]).toBe(value);
  });
});

test("a mismatch is higher than every number, and shares keep their sign", () => {
  const mismatched = payload.mismatch.indexOf(1);
  const { most, at } = peaksOf(profile, introduced, payload.mismatch, 3);
  expect(most.some((value, k) => value === Infinity && profile.rows[at[k]] === mismatched)).toBe(true);
  const shares = introduced.map((_, row) => (row === 5 ? -0.5 : 0.1));
  expect(Math.min(...peaksOf(profile, shares, null, 10, true).most)).toBe(-0.5);
});

test("bands cover the program without a gap, in no more detail than there is room for", () => {
  for (const most of [2, 12, 80, 1000]) {
    const bands = bandsOf(profile, most);
    expect(bands[0].from).toBe(0);
    expect(bands[bands.length - 1].end).toBe(profile.rows.length);
    bands.slice(1).forEach((band, k) => expect(band.from).toBe(bands[k].end));
  }
  expect(bandsOf(profile, 1000).length).toBeGreaterThan(bandsOf(profile, 60).length);
  for (const { from, end, text } of bandsOf(profile, 60)) {
    for (let place = from; place < end; place++) {
      const path = textAt(payload.column("module"), profile.rows[place]);
      if (path) expect(path.startsWith(text)).toBe(true);
    }
  }
});

test.each([
  ["encoder.layer.0.attention", 30, "encoder.layer.0.attention"],
  ["encoder.layer.0.attention", 12, "0.attention"],
  ["encoder.layer.0.attention", 9, "attention"],
  ["encoder.layer.0.attention", 8, "…tention"],
  ["encoder.layer.0.attention", 5, ""],
  ["stem.0", 5, ""],
  ["norm", 3, ""],
  ["l", 1, "l"],
])("the band of %s has in %i letters the name %s", (path, letters, name) => {
  expect(bandText(path, letters)).toBe(name);
});

test("a delegate of several modules is not in the module before it", () => {
  const column = payload.column("module");
  if (column?.kind !== "text") throw new Error("no modules");
  const at = [...profile.rows].findIndex((row, place) => {
    const before = profile.rows[place - 1];
    const alone = place > 0 && payload.number("instruction", row) !== payload.number("instruction", before);
    return alone && payload.text("kind", row) === "delegate" && column.codes[before] >= 0;
  });
  const [row, before] = [profile.rows[at], profile.rows[at - 1]];
  const without = (gone: number): ReturnType<typeof profileOf> => {
    const codes = column.codes.map((code, k) => (k === gone ? -1 : code));
    const columns = payload.columns.map((one) => (one === column ? { ...column, codes } : one));
    return profileOf({ ...payload, columns, column: (name) => columns.find((one) => one.name === name) });
  };
  expect(bandsOf(without(row), 1000).find(({ from }) => from === at)?.text).toBe("");
  // A kernel that is in no module was called between others.
  const band = bandsOf(without(before), 1000).find(({ from, end }) => from < at && at <= end);
  expect(payload.text("kind", before)).not.toBe("delegate");
  expect(band?.text).not.toBe("");
});

test("the axis holds every number, on a logarithmic scale", () => {
  const { top } = profile;
  expect(heightOf(0, top)).toBe(0);
  expect(heightOf(NaN, top)).toBe(0);
  expect(heightOf(Infinity, top)).toBe(1);
  expect(heightOf(10, top) - heightOf(1, top)).toBeCloseTo(heightOf(100, top) - heightOf(10, top));
});

test("limits far above everything do not press the rest together", () => {
  const column = payload.column("introduced_severity");
  if (column?.kind !== "number" || !column.limits) throw new Error("no limits");
  const [look, fault] = column.limits.map((limits) => limits.map((limit, row) => (row === 3 ? 10_000 * limit : limit)));
  const columns = payload.columns.map((one) => (one === column ? { ...column, limits: [look, fault] as const } : one));
  const squeezed = profileOf({ ...payload, columns, column: (name) => columns.find((one) => one.name === name) });
  expect(squeezed.top).toBe(profile.top);
});

test("a span is a term of the search box", () => {
  expect(spanQuery(payload, profile, 3, 5)).toMatch(/^at:\d+\.\.\d+$/);
});
