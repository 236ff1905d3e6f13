// The flow of imports between the folders of js/, and that the check of it fails where it should.
import { expect, test } from "vitest";
import { LAYERS, faultsOf, importGraph, readSources } from "./flow.mjs";

function faults(sources) {
  return faultsOf(importGraph(new Map(Object.entries(sources))));
}

test("imports of js/ run downwards, and none in a circle", async () => {
  const graph = importGraph(await readSources("js"));
  const folders = new Set(
    [...graph.keys()].map((path) => (path.includes("/") ? path.split("/")[0] : "entries")),
  );
  expect([...folders].sort()).toEqual(LAYERS.flat().sort());
  expect([...graph.values()].flat().length).toBeGreaterThan(200);
  expect(faultsOf(graph)).toEqual([]);
});

test.each([
  ["an import", 'import { draw } from "../ui/draw";'],
  ["a type", 'import type { Draw } from "../ui/draw";'],
  ["a type among values", 'import { type Draw } from "../ui/draw";'],
  ["a re-export", 'export { draw } from "../ui/draw";'],
  ["a re-export of all", 'export * from "../ui/draw";'],
  ["an import for its effect", 'import "../ui/draw";'],
  ["an import that is made later", 'const late = () => import("../ui/draw");'],
])("an arrow upwards is found: %s", (_, statement) => {
  const sources = { "data/rows.ts": statement, "ui/draw.tsx": "export const draw = <p>it's drawn</p>;" };
  expect(faults(sources)).toEqual(["data/rows.ts must not import ui/draw.tsx"]);
});

test("neighbours don't import one another, and what is on top is imported by nobody", () => {
  expect(faults({ "tree/a.ts": 'import "../graph/b";', "graph/b.ts": "" })).toHaveLength(1);
  expect(faults({ "labextension/a.ts": 'import "../index";', "index.ts": "" })).toHaveLength(1);
  expect(faults({ "index.ts": 'import "./dev/sample";', "dev/sample.ts": "" })).toHaveLength(1);
  expect(faults({ "kernel/a.ts": 'import "../attic/b";', "attic/b.ts": "" })).toHaveLength(1);
});

test("a circle between folders is found although no files are in one", () => {
  const sources = {
    "state/store.ts": 'import "../data/payload";',
    "state/view.ts": "",
    "data/payload.ts": "",
    "data/filter.ts": 'import type { View } from "../state/view";',
  };
  expect(faults(sources)).toEqual(["data/filter.ts must not import state/view.ts"]);
});

test("a circle between files of one folder is found, also one of types", () => {
  const sources = {
    "data/a.ts": 'import { b } from "./b";',
    "data/b.ts": 'import { c } from "./c";',
    "data/c.ts": 'import type { A } from "./a";',
  };
  expect(faults(sources)).toEqual(["circle: data/a.ts -> data/b.ts -> data/c.ts -> data/a.ts"]);
});

test("what runs downwards is right", () => {
  const sources = {
    "index.ts": 'import { mount } from "./mount";',
    "mount.tsx": 'import { App } from "./layout/App"; import { codec } from "./kernel/codec";',
    "layout/App.tsx": 'import { Table } from "../table/Table"; import "preact";',
    "table/Table.tsx": 'import type { View } from "../state/view"; import "./table.css";',
    "state/view.ts": "",
    "kernel/codec.ts": "",
  };
  expect(faults(sources)).toEqual([]);
});
