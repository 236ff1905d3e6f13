// The model's code, as stack traces tell it.
import { expect, test } from "vitest";
import { excerptOf, framesOf, ownFrame } from "./code";
import type { Tree } from "./tree";

const trace = (line: number, code: string, marks = ""): string =>
  [
    '  File "/env/lib/python3.11/site-packages/torch/_dynamo/export.py", line 232, in forward',
    "    res = self._export_root(*args, **kwargs)",
    `  File "/home/me/net.py", line ${line}, in forward`,
    `    ${code}`,
    ...(marks ? [`    ${marks}`] : []),
  ].join("\n");

const stacks = [
  trace(41, "x = self.norm1(x + self.block1(x))", "    ^^^^^^^^^^"),
  trace(40, "x = self.stem(images)"),
  trace(42, "x = torch.relu(self.down(x))"),
  "",
];

function treeOf(size: readonly number[], stackOf: readonly number[]): Tree {
  return {
    size: Int32Array.from(size),
    text: (_: string, node: number) => stacks[stackOf[node]] ?? null,
    words: () => stacks,
  } as unknown as Tree;
}

test("frames have their file, line, function, code, and the part that ran", () => {
  const frames = framesOf(stacks[0]);
  expect(frames.map(({ line }) => line)).toEqual([232, 41]);
  expect(frames[1]).toMatchObject({ file: "/home/me/net.py", function: "forward", mark: [4, 14] });
  expect(ownFrame(stacks[0])?.line).toBe(41);
  expect(ownFrame("nothing of the kind")).toBeNull();
});

test.each([
  ["return self.b(self.n(x))", "self.n(x))", "self.n(x)"],
  ["y = f(self.a(x[0, (1)]), self.c(x))", "self.a(x[0, (1)]), self.c(x))", "self.a(x[0, (1)])"],
  ["y = self.a(x); return self.b(y)", "self.a(x); return self.b(y)", "self.a(x)"],
  ['y = f(self.a(x, ")"))', 'self.a(x, ")"))', 'self.a(x, ")")'],
  ["y = self.a(x, self.b(", "self.a(x, self.b(", "self.a(x, self.b("],
])("of %s the part that ran ends before what is around it", (code, marked, ran) => {
  const from = code.indexOf(marked);
  const mark = framesOf(trace(7, code, " ".repeat(from) + "^".repeat(marked.length)))[1].mark ?? [0, 0];
  expect(code.slice(...mark)).toBe(ran);
});

test("the lines around an operator's own are those that other operators come from", () => {
  const excerpt = excerptOf(treeOf([1, 1, 1], [0, 1, 2]), 0);
  expect(excerpt?.lines.map(({ number, own }) => [number, own])).toEqual([
    [40, false],
    [41, true],
    [42, false],
  ]);
});

test("a delegate comes from the lines of what is inside", () => {
  const excerpt = excerptOf(treeOf([3, 1, 1], [3, 1, 2]), 0);
  expect(excerpt?.lines.filter(({ own }) => own).map(({ number }) => number)).toEqual([40, 42]);
  expect(excerptOf(treeOf([1], [3]), 0)).toBeNull();
});
