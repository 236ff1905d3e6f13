// The panes as tabs; shown by the style sheet only where there is room for one pane.
import type { JSX } from "preact";
import type { Tab } from "../state/view";
import { TabList } from "../ui/TabList";
import { useApp } from "../ui/context";

const TABS: { name: Tab; text: string }[] = [
  { name: "tree", text: "Graph" },
  { name: "table", text: "Gaps" },
  { name: "tensor", text: "Selected value" },
];

export function Tabs(): JSX.Element {
  const { tab } = useApp().view;
  return (
    <TabList
      label="Panes"
      class="etv-tabs"
      tabs={TABS}
      value={tab.value}
      onChange={(name) => (tab.value = name)}
    />
  );
}
