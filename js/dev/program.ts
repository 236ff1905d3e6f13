// A made-up program in the manner of a vision transformer: delegates with operators inside,
// layer norms left to portable kernels. Seeded: the same options give the same program.

export interface SampleNode {
  kind: "program" | "method" | "delegate" | "kernel" | "inner" | "module" | "value";
  label: string;
  op: string | null;
  backend: string | null;
  shape: string | null;
  module: string | null;
  instruction: number;
  latency: number;
  row: number;
  children: SampleNode[];
}

export interface SampleRow {
  kind: "kernel" | "delegate" | "inner";
  op: string;
  backend: string | null;
  shape: string;
  module: string;
  source: string;
  referenceOps: string;
  instruction: number;
  latency: number;
  compared: boolean;
  /** Of which execution. */
  run?: number;
}

export interface SampleProgram {
  program: SampleNode;
  modules: SampleNode;
  rows: SampleRow[];
}

export function random(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

const XNNPACK = "XnnpackBackend";
const ATTENTION = [
  "aten.linear.default",
  "aten.view_copy.default",
  "aten.permute_copy.default",
  "aten.bmm.default",
  "aten.softmax.int",
  "aten.bmm.default",
  "aten.linear.default",
];
const MLP = ["aten.linear.default", "aten.gelu.default", "aten.linear.default"];

function node(kind: SampleNode["kind"], label: string, more: Partial<SampleNode> = {}): SampleNode {
  return {
    kind,
    label,
    op: null,
    backend: null,
    shape: null,
    module: null,
    instruction: -1,
    latency: NaN,
    row: -1,
    children: [],
    ...more,
  };
}

class Builder {
  readonly rows: SampleRow[] = [];
  readonly method = node("method", "forward");
  readonly #next: () => number;

  constructor(seed: number) {
    this.#next = random(seed);
  }

  delegate(owner: SampleNode, path: string, inner: string[], inside: number): void {
    const repeated = Array.from({ length: inside }, (_, k) => inner[k % inner.length]);
    const latency = 0.2 + this.#next() * 3;
    const row = this.#row("delegate", "executorch_call_delegate", path, XNNPACK, latency, inner.join(", "));
    const own = node("delegate", `delegate ${row}`, {
      op: "executorch_call_delegate",
      backend: XNNPACK,
      shape: "[1, 197, 768]",
      module: path,
      instruction: row,
      latency,
      row,
      children: repeated.map((op, k) =>
        node("inner", `${op.split(".")[1]}_${k}`, { op, shape: "[1, 197, 768]", module: path }),
      ),
    });
    this.method.children.push(own);
    owner.children.push({ ...own });
  }

  kernel(owner: SampleNode, path: string, op: string): void {
    const latency = 0.01 + this.#next() * 0.4;
    const row = this.#row("kernel", op, path, null, latency, op);
    const own = node("kernel", op, {
      op,
      shape: "[1, 197, 768]",
      module: path,
      instruction: row,
      latency,
      row,
    });
    this.method.children.push(own);
    owner.children.push(own);
  }

  #row(
    kind: SampleRow["kind"],
    op: string,
    module: string,
    backend: string | null,
    latency: number,
    referenceOps: string,
  ): number {
    const row = this.rows.length;
    this.rows.push({
      kind,
      op,
      backend,
      module,
      latency,
      referenceOps,
      shape: "[1, 197, 768]",
      source: `vision_transformer.py:${90 + (row % 240)}`,
      instruction: row,
      compared: true,
    });
    return row;
  }
}

/** `layers` blocks of eight rows; `inside` operators in each delegate. */
export function sampleProgram(layers: number, inside: number, seed = 7): SampleProgram {
  const build = new Builder(seed);
  const root = node("module", "VisionTransformer", { module: "" });
  build.delegate(root, "conv_proj", ["aten.convolution.default", "aten.permute_copy.default"], 3);
  const encoder = node("module", "encoder", { module: "encoder" });
  root.children.push(encoder);
  for (let layer = 0; layer < layers; layer++) {
    const path = `encoder.layers.encoder_layer_${layer}`;
    const block = node("module", `encoder_layer_${layer}`, { module: path });
    const attention = node("module", "self_attention", { module: `${path}.self_attention` });
    const mlp = node("module", "mlp", { module: `${path}.mlp` });
    encoder.children.push(block);
    build.kernel(block, `${path}.ln_1`, "aten.native_layer_norm.out");
    block.children.push(attention);
    build.delegate(attention, attention.module ?? "", ATTENTION, inside);
    build.kernel(attention, attention.module ?? "", "aten.clone.out");
    build.kernel(block, path, "aten.add.out");
    build.kernel(block, `${path}.ln_2`, "aten.native_layer_norm.out");
    block.children.push(mlp);
    build.delegate(mlp, mlp.module ?? "", MLP, inside);
    build.kernel(mlp, mlp.module ?? "", "aten.view_copy.out");
    build.kernel(block, path, "aten.add.out");
  }
  build.kernel(root, "encoder.ln", "aten.native_layer_norm.out");
  build.delegate(root, "heads.head", ["aten.linear.default"], 1);
  const program = node("program", "vit_b_16", { children: [build.method] });
  return { program, modules: root, rows: build.rows };
}

/** Rows for the operators inside of the delegate calls that were zoomed into; their nodes get them. */
export function addInnerRows(sample: SampleProgram, zoomed: readonly number[]): void {
  for (const row of zoomed) {
    const call = sample.rows[row];
    const owners = [sample.program, sample.modules].flatMap((root) => delegatesOf(root, row));
    owners[0]?.children.forEach((child, k) => {
      const own = sample.rows.length;
      for (const owner of owners) {
        const children = [...owner.children];
        children[k] = { ...children[k], row: own };
        owner.children = children;
      }
      sample.rows.push({ ...call, kind: "inner", op: child.op ?? "", backend: null, latency: NaN });
    });
  }
}

function delegatesOf(root: SampleNode, row: number): SampleNode[] {
  if (root.kind === "delegate" && root.row === row) return [root];
  return root.children.flatMap((child) => delegatesOf(child, row));
}
