// The modules that JupyterLab shares with its extensions (webpack's share scope), by name.
// Their objects are JupyterLab's own: services are asked for by the identity of a token.

interface Shared {
  get(): Promise<() => unknown> | (() => unknown);
  loaded?: unknown;
}

export type ShareScope = Readonly<Record<string, Readonly<Record<string, Shared>>>>;

function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map((version) =>
    version.split(/[.+-]/).map((part) => Number.parseInt(part, 10) || 0),
  );
  for (let at = 0; at < 3; at++) {
    const difference = (left[at] ?? 0) - (right[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return 0;
}

/** The version that webpack takes for a singleton: one that is loaded, else the newest. */
export function chooseVersion(versions: Readonly<Record<string, Shared>>): string | null {
  const names = Object.keys(versions).sort(compareVersions).reverse();
  return names.find((name) => versions[name]?.loaded) ?? names[0] ?? null;
}

/** A shared module, or null where this JupyterLab (or Notebook) does not have it. */
export async function sharedModule<T>(scope: ShareScope, name: string): Promise<T | null> {
  const versions = scope[name] ?? {};
  const version = chooseVersion(versions);
  const shared = version === null ? undefined : versions[version];
  return shared ? ((await shared.get())() as T) : null;
}
