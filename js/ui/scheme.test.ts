// A background says whether the page is dark; a transparent one says nothing.
import { expect, test } from "vitest";
import { isDark } from "./scheme";

test.each([
  ["rgb(17, 17, 17)", true],
  ["rgb(255, 255, 255)", false],
  ["rgba(30, 30, 30, 0.9)", true],
  ["rgba(0, 0, 0, 0)", null],
  ["transparent", null],
])("%s", (color, dark) => expect(isDark(color)).toBe(dark));
