// Builds the views into etviz/view/static: index.js (widget), report.js (HTML report), index.css, report.css,
// and the prebuilt JupyterLab extension of the side panel into etviz/labextension.
// --watch rebuilds on change; --harness serves js/dev with generated data for looking at the views.
import { readFile, rm, writeFile } from "node:fs/promises";
import { relative } from "node:path";
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

const labextension = "etviz/labextension";

// The name of the script holds its hash: browsers keep the files of extensions.
async function buildLabextension() {
  await rm(labextension, { recursive: true, force: true });
  const { metafile } = await esbuild.build({
    ...shared,
    entryPoints: { remoteEntry: "js/labextension/remoteEntry.ts" },
    outdir: `${labextension}/static`,
    entryNames: "[name].[hash]",
    format: "iife",
    loader: { ".css": "text" },
    metafile: true,
  });
  const load = relative(labextension, Object.keys(metafile.outputs)[0]);
  const version = /__version__ = "(.+)"/.exec(await readFile("etviz/_version.py", "utf8"))[1];
  const manifest = {
    name: "etviz",
    version,
    description: "Side panels of etviz",
    license: "BSD-3-Clause",
    dependencies: { "@jupyterlab/application": "^4.0.0" },
    jupyterlab: { extension: true, _build: { load, extension: "./extension" } },
  };
  const install = {
    packageManager: "python",
    packageName: "etviz",
    uninstallInstructions: "pip uninstall etviz",
  };
  await writeFile(`${labextension}/package.json`, `${JSON.stringify(manifest, null, 2)}\n`);
  await writeFile(`${labextension}/install.json`, `${JSON.stringify(install, null, 2)}\n`);
}

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
  await Promise.all([...targets.map((target) => esbuild.build(target)), buildLabextension()]);
}
