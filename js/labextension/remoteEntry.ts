// Entry of the prebuilt JupyterLab extension: a module-federation container written by hand.
// It holds one module and shares none, so that esbuild can build it and no webpack is needed.
import type { Lumino, NotebookModule } from "./jupyterlab";
import { createPlugin } from "./plugin";
import { type ShareScope, sharedModule } from "./shared";

interface Container {
  init(scope: ShareScope): void;
  get(module: string): Promise<() => unknown>;
}

let scope: ShareScope = {};

async function extension(): Promise<unknown> {
  const [lumino, notebook, apputils, application] = await Promise.all([
    sharedModule<Lumino>(scope, "@lumino/widgets"),
    sharedModule<NotebookModule>(scope, "@jupyterlab/notebook"),
    sharedModule<{ ICommandPalette: object }>(scope, "@jupyterlab/apputils"),
    sharedModule<{ ILayoutRestorer: object }>(scope, "@jupyterlab/application"),
  ]);
  if (!lumino || !notebook || !apputils || !application) return [];
  const { ICommandPalette } = apputils;
  const { ILayoutRestorer } = application;
  return createPlugin(lumino, notebook, ICommandPalette, ILayoutRestorer);
}

const container: Container = {
  init(shared) {
    scope = shared;
  },
  async get(module) {
    if (module !== "./extension") throw new Error(`etviz has no module ${module}`);
    const plugin = await extension();
    return () => ({ __esModule: true, default: plugin });
  },
};

const page = globalThis as typeof globalThis & { _JUPYTERLAB?: Record<string, Container> };
page._JUPYTERLAB ??= {};
page._JUPYTERLAB.etviz = container;
