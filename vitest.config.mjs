// Unit tests of the views: pure modules, and components in happy-dom.
import { defineConfig } from "vitest/config";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  test: {
    environment: "happy-dom",
    setupFiles: ["js/dev/setup.ts"],
    include: ["js/**/*.test.{ts,tsx}"],
  },
});
