// The tab with the map: what it shows, and the slice that was chosen.
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { MapOf } from "../state/contract";
import { FIRST_MAP, type MapChoice, mapQuestion } from "../state/maps";
import { useApp } from "../ui/context";
import { Switches } from "../ui/Switches";
import { MapChart } from "./MapChart";
import { MapControls } from "./MapControls";
import { ChartPlaceholder, Failure } from "./States";
import { useAnswer } from "./useAnswer";

const OF: { name: MapOf; text: string; tip: string }[] = [
  { name: "error", text: "error", tip: "runtime − reference" },
  { name: "reference", text: "reference", tip: "Values of the reference" },
  { name: "runtime", text: "runtime", tip: "Values at runtime" },
];
const SCALES = [
  { name: "linear", text: "linear", tip: "Linear colours" },
  { name: "log", text: "log", tip: "Logarithmic colours: four decades" },
];

/** The slice is chosen anew for each row. */
export function MapTab({ row }: { row: number }): JSX.Element {
  const app = useApp();
  const { mapOf, logMap } = app.view;
  const [slice, setSlice] = useState<MapChoice & { row: number }>({ ...FIRST_MAP, row });
  const { kernel } = app.store.source;
  const of = kernel ? mapOf.value : "error";
  const choice: MapChoice = slice.row === row ? { ...slice, of } : { ...FIRST_MAP, of };
  const { facts, stale, error, retry } = useAnswer(mapQuestion(row, choice));
  return (
    <>
      <div class="etv-chart-bar">
        <Switches
          label="Shown in the map"
          choices={OF.map((one) => ({ ...one, disabled: !kernel && one.name !== "error" }))}
          value={of}
          onChange={(name) => (mapOf.value = name)}
        />
        <span class="etv-spring" />
        <Switches
          label="Scale of the colours"
          choices={SCALES}
          value={logMap.value ? "log" : "linear"}
          onChange={(name) => (logMap.value = name === "log")}
        />
      </div>
      {error && <Failure error={error} retry={retry} />}
      {!error && !facts && <ChartPlaceholder />}
      {!error && facts && (
        <>
          {facts.values.length === 0 ? (
            <p class="etv-none">The tensor has no elements.</p>
          ) : (
            <MapChart map={facts} of={of} log={logMap.value} stale={stale} />
          )}
          <MapControls
            map={facts}
            choice={choice}
            disabled={!kernel}
            onChange={(next) => setSlice({ ...next, row })}
          />
        </>
      )}
    </>
  );
}
