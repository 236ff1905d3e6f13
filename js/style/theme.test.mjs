// Whoever sees little contrast still sees where controls and bars are: WCAG 2.2, success criterion 1.4.11.
import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

const css = readFileSync(new URL("./theme.css", import.meta.url), "utf8");
const PAGES = [
  ["#ffffff", "#f6f7f9"],
  ["#16191d", "#20252b"],
];

function luminance(color) {
  const [red, green, blue] = [1, 3, 5]
    .map((at) => parseInt(color.slice(at, at + 2), 16) / 255)
    .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(a, b) {
  const [dark, light] = [luminance(a), luminance(b)].sort((one, other) => one - other);
  return (light + 0.05) / (dark + 0.05);
}

const NAMES = ["control", "step-0", "step-1", "step-2", "step-3", "step-4", "part", "reference", "runtime", "error"];

test.each(NAMES)("%s has 3:1 to the page, light and dark", (name) => {
  const colors = new RegExp(`--etv-${name}: light-dark\\((#\\w{6}), (#\\w{6})\\)`).exec(css)?.slice(1) ?? [];
  expect(colors).toHaveLength(2);
  colors.forEach((color, scheme) => {
    for (const page of PAGES[scheme]) expect(contrast(color, page)).toBeGreaterThanOrEqual(3);
  });
});
