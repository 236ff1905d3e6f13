// Unit tests of the views: pure modules, and components in happy-dom.
import { defineConfig } from "vitest/config";

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  esbuild: { jsx: "automatic", jsxImportSource: "preact" },
  test: {
    environment: "happy-dom",
    include: ["js/**/*.test.{ts,tsx}"],
  },
});
