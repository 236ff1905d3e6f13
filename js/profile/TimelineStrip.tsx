// What the runtime timed in one execution, in place of the profile. It is asked for when it is first looked at. A press
// selects a row, a drag shows a span, arrows read one event after the other, + and − zoom.
import type { JSX } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import type { Loadable } from "../kernel/answers";
import { NOT_IN_REPORT } from "../kernel/container";
import type { TimedRuns } from "../kernel/contract";
import { formatNumber } from "../data/format";
import type { Payload } from "../data/payload";
import { FRAMEWORK, OPERATOR, type Timeline, eventAt, formatTime, moved, timelineQuestion } from "../data/timeline";
import { Button, RetryButton } from "../ui/Button";
import { useApp } from "../ui/context";
import { followPointer } from "../ui/drag";
import { Icon, LevelIcon } from "../ui/Icon";
import { arrowOf } from "../ui/keys";
import { Select } from "../ui/Select";
import { useWidth } from "../ui/useWidth";
import { barOf, drawTimeline, levelAt, nameOf, timeAt, timeFrame } from "./drawTimeline";
import { usePicture } from "../ui/picture";
import { StripSwitch } from "./StripSwitch";

/** A press this near to an event means it. */
const NEAR = 4;
/** A drag this short is a press. */
const PRESS = 4;
const NEARER = 0.6;
/** The shortest span, as a part of the whole. */
const SHORTEST = 1e-5;

function useTimeline(run: number): Loadable<Timeline> {
  const { store } = useApp();
  const generation = store.generation.value;
  const [held, hold] = useState<Loadable<Timeline>>({ status: "loading" });
  useEffect(() => store.answers.get(timelineQuestion(run)).subscribe(hold), [run, generation]);
  return held;
}

/** What is known of one event. */
function Reading({ payload, timeline, event }: { payload: Payload; timeline: Timeline; event: number }): JSX.Element {
  const { rows } = useApp();
  const row = timeline.row[event];
  const operator = timeline.operator(event);
  const inside = timeline.kind[event] === OPERATOR;
  const column = rows.gaugeColumn.value;
  const value = row >= 0 && column ? formatNumber(column.values[row], column.format) : "";
  return (
    <>
      <b>{nameOf(payload, timeline, event)}</b>
      {inside && (
        <span>
          {operator
            ? `→ ${row >= 0 ? payload.nameOf(row) : operator} (${timeline.confidence(event)})`
            : "which operator it is of is not known"}
        </span>
      )}
      <span>{Number.isNaN(timeline.length[event]) ? "duration not known" : formatTime(timeline.length[event])}</span>
      <span>at {formatTime(timeline.start[event])}</span>
      {value && <span>{`${column?.label} ${value}`}</span>}
    </>
  );
}

function Legend({ timeline }: { timeline: Timeline }): JSX.Element {
  const column = useApp().rows.gaugeColumn.value;
  const likely = Array.from({ length: timeline.count }, (_, event) => event).some(
    (event) => timeline.confidence(event) === "likely",
  );
  return (
    <>
      <span class="etv-profile-key">
        <i data-tone="introduced" /> {column ? `colour: ${column.label}` : "time"}
      </span>
      <span class="etv-profile-key">
        <i data-tone="grey" /> no row
      </span>
      {likely && (
        <span class="etv-profile-key" data-tip="The backend does not say which operator it timed; kind and order fit">
          <i data-tone="likely" /> operator likely
        </span>
      )}
    </>
  );
}

function RunSelect({ timed, run }: { timed: TimedRuns; run: number }): JSX.Element | null {
  const { view } = useApp();
  if (timed.runs < 2) return null;
  const choices = Array.from({ length: timed.runs }, (_, at) => ({
    name: String(at),
    text: `run ${at + 1} of ${timed.runs}${at === timed.typical ? " (median)" : ""}`,
  }));
  return (
    <Select
      label="Timed execution"
      class="etv-timed-run"
      choices={choices}
      value={String(run)}
      onChange={(at) => {
        view.timeSpan.value = null;
        view.timedRun.value = Number(at);
      }}
    />
  );
}

/** What is to be known of the times. */
function Note({ timed, notes }: { timed: TimedRuns; notes: readonly string[] }): JSX.Element | null {
  const text = [timed.note, ...notes].filter(Boolean).join("\n");
  if (!text) return null;
  return (
    <span class="etv-time-note" data-level={timed.distorted ? "warn" : "unknown"} tabIndex={0} data-tip={text}>
      {timed.distorted ? <LevelIcon level="warn" /> : <Icon name="note" />}
      {timed.distorted ? "logging values is in these times" : "about these times"}
    </span>
  );
}

interface PlotProps {
  payload: Payload;
  timeline: Timeline;
  pointed: number;
  point: (event: number) => void;
}

function Plot({ payload, timeline, pointed, point }: PlotProps): JSX.Element {
  const { rows, selection, view } = useApp();
  const [box, width] = useWidth<HTMLDivElement>(900);
  const [brush, setBrush] = useState<readonly [number, number] | null>(null);
  const span = view.timeSpan.value;
  const frame = useMemo(() => timeFrame(width, timeline, span), [width, timeline, span]);
  const column = rows.gaugeColumn.value;
  const passes = rows.passes.value;
  const scene = useMemo(() => ({ payload, timeline, column, passes }), [payload, timeline, column, passes]);
  const what = useMemo(() => ({}), [frame, scene]);
  const [canvas, probe] = usePicture(frame.width, frame.height, (context, paint) => drawTimeline(context, frame, scene, paint), what);
  const selected = selection.row.value;
  const marked = useMemo(
    () => (selected < 0 ? [] : [...timeline.row.keys()].filter((event) => timeline.row[event] === selected)),
    [timeline, selected],
  );

  const show = (from: number, to: number): void => {
    const least = timeline.total * SHORTEST;
    const long = Math.min(timeline.total, Math.max(least, to - from));
    const start = Math.min(timeline.total - long, Math.max(0, (from + to - long) / 2));
    view.timeSpan.value = long >= timeline.total ? null : [start, start + long];
  };
  const zoom = (by: number, around: number): void =>
    show(around - (around - frame.from) * by, around + (frame.to - around) * by);
  const see = (event: number): void => {
    point(event);
    const [start, end] = [timeline.start[event], timeline.end[event]];
    const long = frame.to - frame.from;
    if (start >= frame.from && start <= frame.to) return;
    show((start + end - long) / 2, (start + end + long) / 2);
  };
  const eventUnder = ({ clientX, clientY }: { clientX: number; clientY: number }): number => {
    const { left, top } = (box.current as HTMLDivElement).getBoundingClientRect();
    const slack = timeAt(frame, NEAR) - timeAt(frame, 0);
    return eventAt(timeline, levelAt(clientY - top), timeAt(frame, clientX - left), slack);
  };
  const select = (event: number): void => {
    const row = timeline.row[event] ?? -1;
    if (row >= 0) selection.selectRow(row);
  };
  const onPointerDown = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const { left } = (box.current as HTMLDivElement).getBoundingClientRect();
    const start = event.clientX - left;
    let end = start;
    followPointer(
      event,
      globalThis,
      (dx) => {
        end = start + dx;
        setBrush(Math.abs(dx) > PRESS ? [Math.min(start, end), Math.max(start, end)] : null);
      },
      () => {
        setBrush(null);
        if (Math.abs(end - start) <= PRESS) return select(eventUnder(event));
        const [from, to] = [start, end].sort((a, b) => a - b).map((x) => timeAt(frame, x));
        show(Math.max(frame.from, from), Math.min(frame.to, to));
      },
    );
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const arrow = arrowOf(event);
    const around = pointed >= 0 ? (timeline.start[pointed] + timeline.end[pointed]) / 2 : (frame.from + frame.to) / 2;
    if (arrow) {
      const first = marked[0] ?? timeline.kind.findIndex((kind) => kind !== FRAMEWORK);
      see(pointed < 0 ? Math.max(0, first) : moved(timeline, pointed, arrow.across, arrow.down));
    } else if ((event.key === "Enter" || event.key === " ") && pointed >= 0) select(pointed);
    else if (event.key === "+" || event.key === "=") zoom(NEARER, around);
    else if (event.key === "-") zoom(1 / NEARER, around);
    else if (event.key === "Escape" || event.key === "0") view.timeSpan.value = null;
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const mark = (event: number, of: string): JSX.Element | null => {
    const bar = barOf(frame, timeline, event);
    if (!bar) return null;
    const style = { left: `${bar.x - 1}px`, top: `${bar.y - 1}px`, width: `${bar.width + 2}px`, height: `${bar.height + 2}px` };
    return <span key={`${of}${event}`} class={of} style={style} />;
  };
  return (
    <div
      class="etv-profile-plot"
      ref={box}
      style={{ height: `${frame.height}px` }}
      role="img"
      aria-label="Timed events: arrows read them, Enter selects, plus and minus zoom, Escape shows all"
      tabIndex={0}
      onPointerMove={(event) => point(eventUnder(event))}
      onPointerDown={onPointerDown}
      onPointerLeave={() => point(-1)}
      onBlur={() => point(-1)}
      onKeyDown={onKeyDown}
    >
      <span ref={probe} hidden />
      <canvas ref={canvas} />
      {marked.map((event) => mark(event, "etv-time-selected"))}
      {pointed >= 0 && mark(pointed, "etv-time-pointed")}
      {brush && <span class="etv-profile-brush" style={{ left: `${brush[0]}px`, width: `${brush[1] - brush[0]}px` }} />}
    </div>
  );
}

export function TimelineStrip({ payload, timed }: { payload: Payload; timed: TimedRuns }): JSX.Element {
  const { store, view } = useApp();
  const run = Math.min(timed.runs - 1, view.timedRun.value ?? timed.typical);
  const held = useTimeline(run);
  const [pointed, point] = useState(-1);
  const timeline = held.status === "ready" ? held.value : null;
  const event = timeline && pointed < timeline.count ? pointed : -1;
  const error = held.status === "error" ? held.error : null;
  return (
    <div class="etv-profile etv-time">
      <div class="etv-profile-line">
        <StripSwitch payload={payload} />
        <RunSelect timed={timed} run={run} />
        <p class="etv-profile-reading" aria-live="polite">
          {timeline && (event >= 0 ? <Reading payload={payload} timeline={timeline} event={event} /> : <Legend timeline={timeline} />)}
        </p>
        {view.timeSpan.value && (
          <Button class="etv-quiet etv-whole" onClick={() => (view.timeSpan.value = null)}>
            Whole run
          </Button>
        )}
        <Note timed={timed} notes={timeline?.notes ?? []} />
      </div>
      {timeline && <Plot payload={payload} timeline={timeline} pointed={event} point={point} />}
      {held.status === "loading" && <p class="etv-time-none" role="status">Asking for the times…</p>}
      {error && (
        <p class="etv-time-none" role="status">
          {error.message} {error.type !== NOT_IN_REPORT && <RetryButton retry={() => store.answers.retry(timelineQuestion(run))} />}
        </p>
      )}
    </div>
  );
}
