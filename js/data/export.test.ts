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

test("Markdown mentions nobody, loads nothing and marks nothing", () => {
  const hostile = decodePayload(samplePayload({ layers: 3, zoomed: [1], label: "<img src=x>  @user a_b _c_ [x](y) ~s~ & *z* `q` \\ |" }));
  const safe = "&lt;img src=x&gt; &#64;user a_b \\_c\\_ \\[x\\](y) \\~s\\~ &amp; \\*z\\* \\`q\\` \\\\ \\|";
  expect(markdownOf(hostile, [1], columns.slice(0, 1)).split("\n")[2]).toBe(`| #1 ${safe} |`);
});

const order = [{ column: "severity", descending: true }];

test("pandas gets a query where its table can answer the search", () => {
  const rows = [4, 2];
  expect(pandasOf(payload, rows, "", order)).toBe('inspection.gaps.sort_values("severity", ascending=False)');
  expect(pandasOf(payload, rows, "severity>10 at:3..5 -kind:delegate module:encoder.*", order)).toBe(
    'inspection.gaps.query("((severity > 10) or status in [\\"non-finite mismatch\\",\\"shape or dtype mismatch\\"]) and ' +
      "(instruction >= 3 and instruction <= 5) and " +
      'not (kind.str.contains(\\"delegate\\", case=False, regex=False, na=False)) and ' +
      '(module.str.fullmatch(\\"encoder\\\\\\\\..*\\", case=False, na=False))", engine="python")' +
      '.sort_values("severity", ascending=False)',
  );
  expect(pandasOf(payload, rows, "severity<3", order)).toContain('(severity < 3) and status not in [\\"non-finite mismatch');
});

test("and else the rows by their index, in their order; those inside of delegates are not in that table", () => {
  const inside = payload.zooms.inside(1)[0];
  for (const filter of ["layer_norm", "op:linear", "is:look", "introduced_part>0.5"]) {
    expect(pandasOf(payload, [4, inside, 2], filter, order)).toBe("inspection.gaps.loc[[4, 2]]");
  }
});
