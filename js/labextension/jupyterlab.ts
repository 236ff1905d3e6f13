// What the extension uses of JupyterLab and Lumino, as types: their packages would bring 160 MB for
// a few names. All of it is public API of JupyterLab 4.

export interface Signal<Sender, Args> {
  connect(slot: (sender: Sender, args: Args) => void): boolean;
}

export interface Title {
  label: string;
  caption: string;
  closable: boolean;
  icon: unknown;
}

export interface Widget {
  id: string;
  readonly node: HTMLElement;
  readonly title: Title;
  readonly isVisible: boolean;
  readonly isAttached: boolean;
  readonly isDisposed: boolean;
  readonly disposed: Signal<Widget, void>;
  parent: Widget | null;
  addClass(name: string): void;
  dispose(): void;
  onAfterShow(message: unknown): void;
  onAfterHide(message: unknown): void;
}

export interface SplitPanel extends Widget {
  readonly widgets: readonly Widget[];
  relativeSizes(): number[];
  setRelativeSizes(sizes: number[]): void;
}

export interface Lumino {
  Widget: new (options: { node: HTMLElement }) => Widget;
}

export interface ExecuteReply {
  content: {
    status: string;
    user_expressions?: Record<string, { status: string; data?: Record<string, unknown>; evalue?: string }>;
  };
}

export interface Kernel {
  readonly id: string;
  readonly info: Promise<{ language_info: { name: string } }>;
  requestExecute(content: object, disposeOnDone?: boolean): { done: Promise<ExecuteReply> };
}

export interface OutputModel {
  readonly data: Readonly<Record<string, unknown>>;
}

export interface Renderer extends Widget {
  renderModel(model: OutputModel): Promise<void>;
}

export interface OutputArea extends Widget {
  readonly widgets: readonly Widget[];
  readonly model: { get(index: number): OutputModel | undefined };
  readonly rendermime: { createRenderer(mimeType: string): Renderer };
}

export interface Context {
  readonly path: string;
}

export interface Notebook extends Widget {
  readonly context: Context;
  readonly content: { readonly widgets: readonly { readonly outputArea?: OutputArea }[] };
  readonly sessionContext: {
    readonly session: { readonly kernel: Kernel | null } | null;
    readonly kernelChanged: Signal<unknown, unknown>;
  };
}

export interface NotebookTracker {
  readonly currentWidget: Notebook | null;
  readonly currentChanged: Signal<unknown, Notebook | null>;
  readonly widgetAdded: Signal<unknown, Notebook>;
  find(test: (notebook: Notebook) => boolean): Notebook | undefined;
  forEach(act: (notebook: Notebook) => void): void;
}

export interface NotebookModule {
  INotebookTracker: object;
  NotebookActions: { executed: Signal<unknown, unknown> };
}

export interface Shell {
  readonly currentWidget: Widget | null;
  /** Not every application's shell tells what is in front. */
  readonly currentChanged?: Signal<unknown, unknown>;
  add(widget: Widget, area: string, options?: { rank?: number }): void;
  activateById(id: string): void;
}

export interface JupyterFrontEnd {
  readonly shell: Shell;
  readonly commands: {
    addCommand(
      id: string,
      options: { label: string; caption?: string; icon?: unknown; execute: () => void },
    ): void;
  };
}

export interface Palette {
  addItem(item: { command: string; category: string }): void;
}

export interface Restorer {
  add(widget: Widget, name: string): void;
}

export interface Plugin {
  id: string;
  description: string;
  autoStart: boolean;
  optional: object[];
  activate(app: JupyterFrontEnd, ...services: unknown[]): void;
}
