// Asks a Python kernel for its Inspections, and to open one. The questions leave no trace: nothing
// in the history, no execution count, no output, and etviz is not imported where it is not in use.
import type { Area } from "../state/panelHost";
import type { Kernel } from "./jupyterlab";

/** One Inspection of a kernel. */
export interface Listed {
  token: string;
  /** What it is called in the notebook. */
  name: string;
  title: string;
  /** Known once it was shown. */
  verdict: string | null;
  level: string | null;
  /** The side area that it is in, or null. */
  area: Area | null;
}

const module = (name: string): string =>
  `__import__('importlib').import_module('etviz.view.widget.${name}')`;
const IN_USE = "'etviz.inspection' in __import__('sys').modules";

async function evaluate(kernel: Kernel, expression: string): Promise<unknown> {
  const info = await kernel.info;
  if (info.language_info.name !== "python") return null;
  const content = {
    code: "",
    silent: true,
    store_history: false,
    allow_stdin: false,
    stop_on_error: false,
    user_expressions: { etviz: expression },
  };
  const reply = await kernel.requestExecute(content, true).done;
  const result = reply.content.user_expressions?.etviz;
  if (!result) return null;
  if (result.status !== "ok") throw new Error(result.evalue ?? "the kernel could not answer");
  return result.data?.["application/json"] ?? null;
}

export async function listInspections(kernel: Kernel): Promise<Listed[]> {
  const answer = await evaluate(kernel, `${module("panel")}.listing() if ${IN_USE} else None`);
  return Array.isArray(answer) ? (answer as Listed[]) : [];
}

export async function openInspection(kernel: Kernel, token: string, area: Area): Promise<void> {
  if (!/^\d+$/.test(token)) throw new Error("this is no Inspection");
  await evaluate(kernel, `${module("widget")}.open_listed('${token}', '${area}')`);
}
