// Imports between the folders of js/ run downwards only, and no files import one another in a circle.
// Imports of types count: they are read from the sources, as a bundler would drop them.
import { readFile, readdir } from "node:fs/promises";
import { posix } from "node:path";
import { parseSync } from "vite";

/** From the lowest; the folders of one line don't import one another. "entries" are the files of js/ itself. */
export const LAYERS = [
  ["kernel"],
  ["data"],
  ["state"],
  ["ui"],
  ["profile", "table", "tree", "graph", "tensor", "tokens"],
  ["layout"],
  ["entries", "labextension"],
  ["dev"],
];

/** The TypeScript files below a folder, tests left out, as a map from path to source. */
export async function readSources(folder) {
  const paths = (await readdir(folder, { recursive: true })).map((path) => path.replaceAll("\\", "/"));
  const modules = paths.filter((path) => /\.tsx?$/.test(path) && !/\.(test|d)\.tsx?$/.test(path));
  const read = async (path) => [path, await readFile(posix.join(folder, path), "utf8")];
  return new Map(await Promise.all(modules.map(read)));
}

/** Which of the files each file imports. */
export function importGraph(sources) {
  const graph = new Map();
  for (const [path, source] of sources) {
    const { staticImports, staticExports, dynamicImports } = parseSync(path, source).module;
    const wanted = [
      ...staticImports.map(({ moduleRequest }) => moduleRequest.value),
      ...staticExports.flatMap(({ entries }) => entries.map(({ moduleRequest }) => moduleRequest?.value)),
      ...dynamicImports.map(({ moduleRequest: { start, end } }) => source.slice(start + 1, end - 1)),
    ];
    const imported = wanted.flatMap((name) => {
      if (!name?.startsWith(".")) return [];
      const target = posix.join(posix.dirname(path), name);
      return [`${target}.ts`, `${target}.tsx`].filter((file) => sources.has(file));
    });
    graph.set(path, [...new Set(imported)]);
  }
  return graph;
}

function folderOf(path) {
  return path.includes("/") ? path.split("/")[0] : "entries";
}

function isDownwards(from, to) {
  const [above, below] = [from, to].map((path) =>
    LAYERS.findIndex((layer) => layer.includes(folderOf(path))),
  );
  return folderOf(from) === folderOf(to) ? above >= 0 : above > below && below >= 0;
}

function circles(graph) {
  const found = [];
  const done = new Set();
  const visit = (file, way) => {
    if (way.includes(file)) found.push([...way.slice(way.indexOf(file)), file].join(" -> "));
    if (done.has(file) || way.includes(file)) return;
    for (const next of graph.get(file) ?? []) visit(next, [...way, file]);
    done.add(file);
  };
  for (const file of graph.keys()) visit(file, []);
  return found;
}

/** What is wrong with a graph of imports, in words; empty if nothing is. */
export function faultsOf(graph) {
  const arrows = [...graph].flatMap(([from, imported]) => imported.map((to) => [from, to]));
  const wrong = arrows.filter(([from, to]) => !isDownwards(from, to));
  return [
    ...wrong.map(([from, to]) => `${from} must not import ${to}`),
    ...circles(graph).map((circle) => `circle: ${circle}`),
  ];
}
