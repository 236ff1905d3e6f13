// @vitest-environment happy-dom
// The verdict and the facts.
import { expect, test } from "vitest";
import { openReady } from "../dev/view";

test("the verdict, the facts and the rows are there, worst first", async () => {
  const view = await openReady();
  expect(view.one(".etv-verdict-text").textContent).toContain("Final outputs differ from the reference");
  expect(view.texts(".etv-chip-label")).toContain("Compared");
  expect(view.one('[data-column="introduced_severity"]').getAttribute("aria-sort")).toBe("descending");
  expect(view.one(".etv-table").getAttribute("aria-rowcount")).toBe("18");
});
