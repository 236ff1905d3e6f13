// Unit tests of the views: pure modules in Node, components in happy-dom (they say so on top); and the flow of imports.
import { defineConfig } from "vitest/config";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  test: {
    // A busy machine is slow, not wrong.
    testTimeout: 30_000,
    // Files that follow one another in a process share its modules and its page: each of them cleans up behind itself.
    isolate: false,
    include: ["js/**/*.test.{ts,tsx,mjs}", "flow.test.mjs"],
  },
});
