// @vitest-environment happy-dom
// One line: the verdict as a heading, what to know first, and the facts behind a button.
import { expect, test } from "vitest";
import { click, openReady, until } from "../dev/view";

test("the verdict is a heading in a live region; the facts are a press away, and lead to their rows", async () => {
  const view = await openReady();
  const verdict = view.one("h2.etv-verdict");
  expect(verdict.textContent).toContain("The final output differs from the reference");
  expect(verdict.closest('[role="status"]')).not.toBeNull();
  expect(view.all(".etv-chip")).toEqual([]);
  click(view.one(".etv-facts-popover button"));
  await until(() => view.texts(".etv-chip-label").includes("First divergence"));
  click(view.all("button.etv-chip")[2]);
  await until(() => view.model.state.selected === 17 || view.one('.etv-row[aria-selected="true"]') !== null);
  expect(view.one('[data-column="introduced_severity"]').getAttribute("aria-sort")).toBe("descending");
  expect(view.one(".etv-table").getAttribute("aria-rowcount")).toBe("18");
});
