// The model's own code, as far as the stack traces of the program tell it: which lines an operator comes from, and what
// is known of the lines around them.
import type { Tree } from "./tree";

export interface Frame {
  /** As the trace has it. */
  file: string;
  line: number;
  function: string;
  code: string;
  /** The part of the code that ran; null where the trace does not mark it. */
  mark: readonly [number, number] | null;
}

export interface Line {
  number: number;
  code: string;
  mark: readonly [number, number] | null;
  /** The operator, or one inside of the delegate, comes from it. */
  own: boolean;
}

export interface Excerpt {
  file: string;
  function: string;
  lines: Line[];
}

const FOREIGN = /[/\\]site-packages[/\\](torch|torchao|executorch)[/\\]/;
const TRACING = /[/\\]site-packages[/\\]torch[/\\](_dynamo|_export|export|fx|_functorch)[/\\]/;
const AROUND = 1;
const MOST = 9;

export function framesOf(stack: string): Frame[] {
  const frames: Frame[] = [];
  const lines = stack.split("\n");
  for (let at = 0; at < lines.length; at++) {
    const head = /^\s*File "([^"]+)", line (\d+)(?:, in (\S+))?/.exec(lines[at]);
    if (!head) continue;
    const next = lines[at + 1] ?? "";
    const code = /^\s*File "/.test(next) ? "" : next;
    const marks = /^\s*[~^]+\s*$/.test(lines[at + 2] ?? "") ? lines[at + 2] : "";
    const indent = code.length - code.trimStart().length;
    const from = marks.length - marks.trimStart().length - indent;
    const text = code.trim();
    frames.push({
      file: head[1],
      line: Number(head[2]),
      function: head[3] ?? "",
      code: text,
      mark: marks && from >= 0 ? [from, endOf(text, from, from + marks.trim().length)] : null,
    });
  }
  return frames;
}

/** Where what ran ends: Dynamo marks all that follows on the line, with brackets and arguments of what is around it. */
function endOf(code: string, from: number, end: number): number {
  let open = 0;
  for (const { 0: sign, index } of code.slice(from, end).matchAll(/"[^"]*"|'[^']*'|[([{}\]),;]/g)) {
    if ("([{".includes(sign)) open++;
    else if (sign.length > 1) continue;
    else if (open === 0) return from + code.slice(from, from + index).trimEnd().length;
    else if (")]}".includes(sign)) open--;
  }
  return end;
}

/** The innermost frame in the user's own code, else of the model; as `source_line` in Python. */
export function ownFrame(stack: string): Frame | null {
  const frames = framesOf(stack).filter(({ file }) => !TRACING.test(file));
  const own = frames.filter(({ file }) => !FOREIGN.test(file));
  return own[own.length - 1] ?? frames[frames.length - 1] ?? null;
}

const known = new WeakMap<Tree, Map<string, Map<number, string>>>();

/** Every line of code that any stack trace of the program shows, by file. */
function codeOf(tree: Tree): Map<string, Map<number, string>> {
  let files = known.get(tree);
  if (!files) known.set(tree, (files = new Map()));
  else return files;
  for (const stack of tree.words("stack")) {
    for (const { file, line, code } of framesOf(stack)) {
      if (!code) continue;
      const lines = files.get(file) ?? new Map<number, string>();
      files.set(file, lines.set(line, code));
    }
  }
  return files;
}

/** The code that a node comes from: its own line, and those of what is inside of it. */
export function excerptOf(tree: Tree, node: number): Excerpt | null {
  if (node < 0) return null;
  const own = new Map<number, Frame>();
  let first: Frame | null = null;
  for (let at = node; at < node + Math.max(1, tree.size[node]); at++) {
    const stack = tree.text("stack", at);
    const frame = stack ? ownFrame(stack) : null;
    if (!frame) continue;
    first ??= frame;
    if (frame.file === first.file) own.set(frame.line, own.has(frame.line) && at > node ? { ...frame, mark: null } : frame);
  }
  if (!first) return null;
  const lines = new Map<number, Line>();
  const around = codeOf(tree).get(first.file);
  for (const number of [...own.keys()].sort((a, b) => a - b)) {
    for (let near = number - AROUND; near <= number + AROUND; near++) {
      const frame = own.get(near);
      const code = frame?.code ?? around?.get(near);
      if (code && (lines.size < MOST || frame)) lines.set(near, { number: near, code, mark: frame?.mark ?? null, own: frame !== undefined });
    }
  }
  const shown = [...lines.values()].sort((a, b) => a.number - b.number).slice(0, MOST);
  return { file: first.file, function: first.function, lines: shown };
}

export function nameOfFile(path: string): string {
  return path.split(/[/\\]/).pop() ?? path;
}
