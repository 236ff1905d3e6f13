// The rows for other tools: every value, quoted as they need it.
import { expect, test } from "vitest";
import { samplePayload } from "../dev/samplePayload";
import { csvOf, markdownOf, pandasOf } from "./export";
import { decodePayload } from "./payload";

const payload = decodePayload(samplePayload({ layers: 3, zoomed: [1], label: '=cmd|"a",`b`' }));
const columns = ["op", "severity", "shape"].map((name) => payload.column(name)).filter((one) => one !== undefined);

test("CSV has every digit, quotes what it has to, and no formula", () => {
  const [head, first] = csvOf([1], columns).split("\r\n");
  expect(head).toBe("op,severity,shape");
  expect(first.startsWith(`"'=cmd|""a"",\`b\`",${payload.number("severity", 1)},"[`)).toBe(true);
});

test("Markdown keeps its columns apart", () => {
  const lines = markdownOf(payload, [1], columns).trimEnd().split("\n");
  expect(lines[1]).toBe("| --- | ---: | --- |");
  expect(lines[2]).toContain("\\|");
  expect(lines[2].match(/(?<!\\)\|/g)).toHaveLength(4);
});

test("pandas gets the rows of gaps, in their order", () => {
  const inside = payload.zooms.inside(1)[0];
  expect(pandasOf(payload, [4, inside, 2])).toBe("inspection.gaps.loc[[4, 2]]");
});
