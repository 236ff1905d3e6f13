// Builds the views into etviz/view/static: index.js (widget), report.js (HTML report), index.css, report.css,
// and the prebuilt JupyterLab extension of the side panel into etviz/labextension. THIRD-PARTY.txt, and the head of each
// script, hold the licences of the packages that the scripts contain; a report contains a script, and so the licences.
// --watch rebuilds on change; --harness serves js/dev with generated data to look at the views.
import { mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
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

// The names of all packages that a script may contain: the dependencies, and theirs.
async function packages(folder = ".", found = new Set()) {
  const { dependencies = {} } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
  for (const name of Object.keys(dependencies)) {
    if (found.has(name)) continue;
    found.add(name);
    await packages(`node_modules/${name}`, found);
  }
  return [...found].sort();
}

// Their notices; packages with the same terms share one copy of them.
async function notices() {
  const byTerms = new Map();
  for (const name of await packages()) {
    const folder = `node_modules/${name}`;
    const { version, license } = JSON.parse(await readFile(`${folder}/package.json`, "utf8"));
    const file = (await readdir(folder)).find((entry) => /^licen[cs]e(\.(md|txt))?$/i.test(entry));
    if (!file) throw new Error(`${name}: the package has no file with its licence`);
    const paragraphs = (await readFile(`${folder}/${file}`, "utf8")).trim().split(/\r?\n\s*\n/);
    const isCopyright = (text) => /^copyright/i.test(text.trim());
    const terms = paragraphs.filter((text) => !isCopyright(text) && !/^the mit license[^\n]*$/i.test(text.trim()));
    const key = terms.join("\n\n").replace(/\s+/g, " ");
    const holders = paragraphs.filter(isCopyright).join("\n");
    const known = byTerms.get(key) ?? { license, packages: [], terms: terms.join("\n\n") };
    known.packages.push(`${name} ${version}\n${holders}`);
    byTerms.set(key, known);
  }
  return [...byTerms.values()]
    .map(({ license, packages, terms }) => `${packages.join("\n\n")}\n\nLicence: ${license}\n\n${terms}\n`)
    .join("\n----\n\n");
}

// The name of the script holds its hash: browsers keep the files of extensions.
async function buildLabextension(banner) {
  await rm(labextension, { recursive: true, force: true });
  const { metafile } = await esbuild.build({
    ...shared,
    banner,
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
} else {
  const text = `etviz contains code of these packages.\n\n${await notices()}`;
  const banner = { js: `/*!\n${text.replaceAll("*/", "* /")}*/` };
  if (process.argv.includes("--watch")) {
    for (const target of targets) await (await esbuild.context({ ...target, banner })).watch();
  } else {
    const built = targets.map((target) => esbuild.build({ ...target, banner }));
    await Promise.all([...built, buildLabextension(banner)]);
  }
  await mkdir(outdir, { recursive: true });
  await writeFile(`${outdir}/THIRD-PARTY.txt`, text);
}
