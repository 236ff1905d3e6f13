// Everything about one row: what it is, how far off it is, its tensors, where it comes from.
import type { ComponentChildren, JSX } from "preact";
import { numberAt, textAt } from "../data/columns";
import { formatCount, formatMilliseconds, formatNumber } from "../data/format";
import type { Payload } from "../data/payload";
import { parseShape, placeNamed, tensorQuestion } from "../data/tensor";
import type { Fingerprint } from "../kernel/contract";
import { useApp } from "../ui/context";
import { LevelIcon } from "../ui/Icon";
import { Answered, useAnswer } from "./answer";
import { Code } from "./Code";
import { Explained, Note } from "./Explained";
import { type FactLine, Facts } from "./Facts";
import { Fingerprints } from "./Fingerprints";
import { Metrics, NonfiniteMatrix, QuantizationSplit, Statistics, WorstElements } from "./tables";
import { ValueTabs, seenIn } from "./ValueTabs";
import { WhatIf } from "./WhatIf";
import { AroundLink, HeadZoom, ZoomProgress, ZoomSection } from "./Zoom";

const SHOWN_ELSEWHERE = new Set(["operator", "metric", "introduced", "latency", "status", "quantization"]);

/** A value of a column whether it is sent as text or as a number. */
function valueOf(payload: Payload, name: string, row: number): string | null {
  const column = payload.column(name);
  const value = numberAt(column, row);
  return column && !Number.isNaN(value) ? formatNumber(value, column.format) : textAt(column, row);
}

function rowFacts(payload: Payload, row: number): FactLine[] {
  const latency = payload.number("latency_ms", row);
  const get = (name: string): string | null => valueOf(payload, name, row);
  // Counts of zero say nothing here.
  const extra = payload.columns.filter(
    (column) => !SHOWN_ELSEWHERE.has(column.group) && numberAt(column, row) !== 0,
  );
  return [
    { name: "output", value: get("output"), mono: true },
    { name: "backend", value: get("backend") },
    { name: "instruction", value: get("instruction") },
    { name: "run", value: get("run") },
    { name: "pairing", value: get("pairing") },
    { name: "latency", value: Number.isNaN(latency) ? null : `${formatMilliseconds(latency)} ms` },
    { name: "computes", value: get("reference_ops"), mono: true },
    { name: "note", value: payload.mismatch[row] === 1 ? null : get("reason") },
    ...extra.map(({ name, label }) => ({ name: label, value: get(name) })),
  ];
}

function Status({ payload, row }: { payload: Payload; row: number }): JSX.Element | null {
  const reason = payload.text("reason", row);
  if (payload.status[row] !== 2 && payload.mismatch[row] !== 1) return null;
  const level = payload.mismatch[row] === 1 ? "bad" : "unknown";
  return (
    <p class="etv-status" data-level={level}>
      <LevelIcon level={level} />
      <span>
        <strong>{payload.text("status", row) ?? "not compared"}</strong>
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

/** What the kernel says about the tensors, around what is known already. */
function Tensors({ payload, row, children }: TensorsProps): JSX.Element {
  const app = useApp();
  const answer = useAnswer(tensorQuestion(row));
  const show = ({ name, evidence }: Fingerprint): void => {
    const place = placeNamed(evidence);
    const shape = parseShape(payload.text("shape", row));
    if (place && shape && app.store.source.kernel) app.lookAtSlice(row, shape, place.axis, place.index);
    else app.view.chart.value = seenIn(name);
  };
  const { facts, error } = answer;
  return (
    <>
      <Answered answer={answer} charts={2}>
        {(shown) => (
          <>
            <Fingerprints fingerprints={shown.fingerprints} onShow={show} />
            <ValueTabs payload={payload} row={row} facts={shown} />
            {shown.nonfinite && <NonfiniteMatrix nonfinite={shown.nonfinite} />}
          </>
        )}
      </Answered>
      {children}
      {facts && !error && (
        <>
          <Statistics statistics={facts.statistics} label={facts.label} />
          <WorstElements worst={facts.worst} />
          <p class="etv-elements">{formatCount(facts.elements)} elements</p>
        </>
      )}
    </>
  );
}

export function RowDetail({ payload, row }: { payload: Payload; row: number }): JSX.Element {
  const kind = payload.text("kind", row);
  const shape = payload.text("shape", row);
  const tree = payload.trees.program;
  return (
    <>
      <div class="etv-detail-head">
        <h2 class="etv-detail-title">{payload.nameOf(row)}</h2>
        {kind && <span class="etv-badge">{kind}</span>}
        {shape && (
          <span class="etv-detail-shape">
            {shape} {payload.text("dtype", row)}
          </span>
        )}
        <HeadZoom payload={payload} row={row} />
      </div>
      <div class="etv-detail-body">
        <Status payload={payload} row={row} />
        <Code
          tree={tree}
          node={tree.rowNode[row] ?? -1}
          module={payload.text("module", row)}
          source={payload.text("source", row)}
        />
        <ZoomProgress row={row} />
        {row < payload.compared && <Note payload={payload} row={row} />}
        {row < payload.compared && <WhatIf payload={payload} row={row} />}
        {row < payload.compared && <Explained payload={payload} row={row} />}
        {payload.zooms.isInner(row) && <AroundLink payload={payload} row={row} />}
        {row >= payload.compared && <Facts lines={rowFacts(payload, row)} flow />}
        {row < payload.compared && (
          <Tensors payload={payload} row={row}>
            <ZoomSection payload={payload} row={row} />
            <Facts lines={rowFacts(payload, row)} flow />
            <Metrics payload={payload} row={row} />
            <QuantizationSplit payload={payload} row={row} />
          </Tensors>
        )}
      </div>
    </>
  );
}
