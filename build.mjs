// Builds the views into etviz/view/static: index.js (widget), report.js (HTML report), index.css, report.css.
// --watch rebuilds on change; --harness serves js/dev with generated data for looking at the views.
import * as esbuild from "esbuild";

const shared = {
  bundle: true,
  minify: true,
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "info",
};
const outdir = "etviz/view/static";
const targets = [
  { ...shared, entryPoints: { index: "js/index.ts" }, outdir, format: "esm" },
  { ...shared, entryPoints: { report: "js/report.ts" }, outdir, format: "iife" },
  { ...shared, entryPoints: { index: "js/style/index.css", report: "js/style/report.css" }, outdir },
];

async function serveHarness() {
  const context = await esbuild.context({
    ...shared,
    minify: false,
    sourcemap: "inline",
    entryPoints: { harness: "js/dev/harness.ts", style: "js/style/index.css" },
    outdir: "js/dev/out",
    format: "esm",
    write: false,
  });
  const { port } = await context.serve({ servedir: "js/dev", host: "127.0.0.1", port: 8765 });
  console.log(`harness: http://127.0.0.1:${port}/`);
}

if (process.argv.includes("--harness")) {
  await serveHarness();
} else if (process.argv.includes("--watch")) {
  for (const target of targets) await (await esbuild.context(target)).watch();
} else {
  await Promise.all(targets.map((target) => esbuild.build(target)));
}
