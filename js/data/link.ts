// What is shown as a part of an address, so that a report opens where its reader has to look:
//   #row=8&tab=map&at=0,3,17&rank=attribution&filter=severity>10&graph

/** What a link tells. */
export interface Shown {
  row: number;
  tab: string | null;
  /** The index of an element of the row. */
  at: readonly number[] | null;
  filter: string;
  graph: boolean;
}

/** The commands (state/commands.ts) that a link stands for. */
export function commandsOfLink(hash: string): string[] {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const command = (name: string, text: (value: string) => string): string[] => {
    const value = given.get(name);
    return value ? [text(value)] : [];
  };
  return [
    ...command("filter", (text) => `filter.set ${text}`),
    ...command("rank", (by) => `rank.${by}`),
    ...command("row", (row) => `row.select ${row}`),
    ...command("tab", (name) => `tab.${name}`),
    ...command("at", (index) => `row.element ${index}`),
    ...(given.has("graph") ? ["tree.graph"] : []),
  ];
}

export function linkOf({ row, tab, at, filter, graph }: Shown): string {
  const given = new URLSearchParams();
  if (row >= 0) given.set("row", String(row));
  if (tab) given.set("tab", tab);
  if (at) given.set("at", at.join(","));
  if (filter) given.set("filter", filter);
  if (graph) given.set("graph", "");
  return `#${given}`;
}
