// @vitest-environment happy-dom
// What the kernel explains on request, and notes on rows.
import { expect, test } from "vitest";
import { click, openReady, press, type, until } from "../dev/view";

const ALL = ["constants", "repro", "ladder", "suggest"];

test("what can be explained has a button; a table of a row goes with it, one of the program stays", async () => {
  const view = await openReady({ explanations: ALL });
  click(view.one('.etv-row[data-row="5"]'));
  await until(() => view.texts(".etv-explained .etv-button").join() === "Constants,Write a repro,Ladder,Suggest a fix");
  click(view.one(".etv-explained .etv-button"));
  await until(() => view.texts(".etv-explained td").includes("float32"));
  expect(view.params("explain")).toEqual([{ what: "constants", row: 5 }]);
  click(view.one('.etv-row[data-row="7"]'));
  await until(() => view.all(".etv-explained td").length === 0);
  click(view.all(".etv-explained .etv-button")[2]);
  await until(() => view.one(".etv-explained .etv-section-title").textContent === "About ladder");
  click(view.one('.etv-row[data-row="5"]'));
  expect(view.one(".etv-explained-text").textContent).toBe("That is all.");
});

test("the palette has what can be explained, and nothing else", async () => {
  const view = await openReady({ explanations: ["ladder"] });
  press(view.one(".etv-row"), "/");
  const input = view.one(".etv-search input") as HTMLInputElement;
  type(input, ">explain.");
  await until(() => view.texts(".etv-offer-text").length === 1);
  press(input, "Enter");
  await until(() => view.params("explain").length === 1);
});

test("a note goes to the kernel, and is marked in the table", async () => {
  const view = await openReady();
  click(view.one('.etv-row[data-row="5"]'));
  await until(() => view.all(".etv-note-field").length === 1);
  const field = view.one(".etv-note-field") as HTMLTextAreaElement;
  field.value = "ask upstream";
  field.dispatchEvent(new Event("change", { bubbles: true }));
  await until(() => view.all('.etv-row[data-row="5"] .etv-noted').length === 1);
  expect(view.params("note")).toEqual([{ row: 5, text: "ask upstream" }]);
  expect((view.one(".etv-note-field") as HTMLTextAreaElement).value).toBe("ask upstream");
});
