// Everything about one row: what it is, how far off it is, its tensors, where it comes from.
import type { ComponentChildren, JSX } from "preact";
import { numberAt, textAt } from "../state/columns";
import { formatCount, formatMilliseconds, formatNumber } from "../state/format";
import type { Payload } from "../state/payload";
import { tensorQuestion } from "../state/tensor";
import { AroundLink, HeadZoom } from "../zoom/HeadZoom";
import { ZoomSection } from "../zoom/ZoomSection";
import { LevelIcon } from "../ui/Icon";
import { type FactLine, Facts, StackTrace } from "./Facts";
import { Fingerprints } from "./Fingerprints";
import { Metrics } from "./Metrics";
import { NonfiniteMatrix } from "./NonfiniteMatrix";
import { Quantized } from "./Quantized";
import { Section } from "./Section";
import { Failure, Placeholder } from "./States";
import { Statistics } from "./Statistics";
import { ValueTabs } from "./ValueTabs";
import { WorstElements } from "./WorstElements";
import { useAnswer } from "./useAnswer";

const SHOWN_ELSEWHERE = new Set(["operator", "metric", "introduced", "latency", "status", "quantization"]);

function numberText(payload: Payload, name: string, row: number): string | null {
  const column = payload.column(name);
  const value = numberAt(column, row);
  return column && !Number.isNaN(value) ? formatNumber(value, column.format) : null;
}

/** A value of a column whether it is sent as text or as a number. */
function anyText(payload: Payload, name: string, row: number): string | null {
  return textAt(payload.column(name), row) ?? numberText(payload, name, row);
}

function rowFacts(payload: Payload, row: number): FactLine[] {
  const latency = numberAt(payload.column("latency_ms"), row);
  const get = (name: string): string | null => anyText(payload, name, row);
  const shape = [get("shape"), get("dtype")].filter((part) => part !== null).join(" ");
  const extra = payload.columns.filter((column) => !SHOWN_ELSEWHERE.has(column.group));
  return [
    { name: "output", value: [get("output"), shape].filter(Boolean).join(" · "), mono: true },
    { name: "backend", value: get("backend") },
    { name: "instruction", value: get("instruction") },
    { name: "pairing", value: get("pairing") },
    { name: "latency", value: Number.isNaN(latency) ? null : `${formatMilliseconds(latency)} ms` },
    ...extra.map((column) => ({ name: column.label, value: extraText(payload, column.name, row) })),
  ];
}

/** Counts of zero say nothing here: they are left out. */
function extraText(payload: Payload, name: string, row: number): string | null {
  return numberAt(payload.column(name), row) === 0 ? null : anyText(payload, name, row);
}

function Origin({ payload, row }: { payload: Payload; row: number }): JSX.Element | null {
  const get = (name: string): string | null => textAt(payload.column(name), row);
  const lines: FactLine[] = [
    { name: "source", value: get("source"), copy: true, mono: true },
    { name: "module", value: get("module"), copy: true, mono: true },
    { name: "reference ops", value: get("reference_ops"), mono: true },
  ];
  if (lines.every((line) => line.value === null) && !get("stack")) return null;
  return (
    <Section title="Where it comes from">
      <Facts lines={lines} />
      <StackTrace stack={get("stack")} />
    </Section>
  );
}

function Status({ payload, row }: { payload: Payload; row: number }): JSX.Element | null {
  const status = textAt(payload.column("status"), row);
  const reason = textAt(payload.column("reason"), row);
  if (payload.status[row] !== 2 && payload.mismatch[row] !== 1 && !reason) return null;
  const level = payload.mismatch[row] === 1 ? "bad" : "unknown";
  return (
    <p class="etv-status" data-level={level}>
      <LevelIcon level={level} />
      <span>
        <strong>{status ?? "not compared"}</strong>
        {reason && `: ${reason}`}
      </span>
    </p>
  );
}

interface TensorsProps {
  payload: Payload;
  row: number;
  children: ComponentChildren;
}

function Tensors({ payload, row, children }: TensorsProps): JSX.Element {
  const { facts, error, retry } = useAnswer(tensorQuestion(row));
  if (error) {
    return (
      <>
        <Failure error={error} retry={retry} />
        {children}
      </>
    );
  }
  if (!facts)
    return (
      <>
        <Placeholder />
        {children}
      </>
    );
  return (
    <>
      <Fingerprints found={facts.fingerprints} />
      <ValueTabs payload={payload} row={row} facts={facts} />
      {facts.nonfinite && <NonfiniteMatrix nonfinite={facts.nonfinite} />}
      {children}
      <Statistics statistics={facts.statistics} />
      <WorstElements worst={facts.worst} />
      <p class="etv-elements">{formatCount(facts.elements)} elements</p>
    </>
  );
}

export function RowDetail({ payload, row }: { payload: Payload; row: number }): JSX.Element {
  const compared = row < payload.compared;
  const kind = textAt(payload.column("kind"), row);
  return (
    <>
      <div class="etv-detail-head">
        <h2 class="etv-detail-title">{textAt(payload.column("op"), row) ?? `row ${row}`}</h2>
        {kind && <span class="etv-badge">{kind}</span>}
        <span class="etv-spring" />
        <HeadZoom payload={payload} row={row} />
      </div>
      <div class="etv-detail-body">
        <Status payload={payload} row={row} />
        <ZoomSection payload={payload} row={row} />
        <Facts lines={rowFacts(payload, row)} flow />
        {payload.zooms.isInner(row) && <AroundLink payload={payload} row={row} />}
        {compared && (
          <Tensors payload={payload} row={row}>
            <Metrics payload={payload} row={row} />
            <Quantized payload={payload} row={row} />
          </Tensors>
        )}
        <Origin payload={payload} row={row} />
      </div>
    </>
  );
}
