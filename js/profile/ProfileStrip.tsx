// The error over the whole program, between header and panes: where it begins, who adds to it, what becomes of it. A
// press selects, a drag keeps the rows of a span, arrows read one value after the other.
import type { JSX, RefObject } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { withSpan } from "../data/query";
import { formatNumber } from "../data/format";
import type { Payload } from "../data/payload";
import { type Profile, spanQuery } from "../data/profile";
import { ownError } from "../data/rank";
import { useApp } from "../ui/context";
import { followPointer } from "../ui/drag";
import { arrowOf } from "../ui/keys";
import { useWidth } from "../ui/useWidth";
import { AttributionLine } from "./AttributionLine";
import { type Frame, type Scene, draw, frameOf, placeAt, xOf, yOf } from "./draw";
import { fontOf, paints, usePicture } from "../ui/picture";
import { StripSwitch } from "./StripSwitch";

const HEIGHT = 92;
const HEIGHT_WITH_SHARES = 112;
/** A press this near to a stem means it. */
const NEAR = 5;
/** A drag this short is a press. */
const PRESS = 4;
/** Height of the title in a picture of the profile. */
const TITLE = 22;

const PNG_RATIO = 2;

/** Saves the picture, with the title over it, when that is asked for. */
function usePng(frame: Frame, scene: Scene, probe: RefObject<HTMLSpanElement | null>): void {
  const wanted = useApp().view.pictures.value;
  useEffect(() => {
    if (wanted === 0 || !probe.current) return;
    const canvas = document.createElement("canvas");
    canvas.width = frame.width * PNG_RATIO;
    canvas.height = (frame.height + TITLE) * PNG_RATIO;
    const context = canvas.getContext("2d");
    if (!context) return;
    const paint = paints(probe.current);
    context.scale(PNG_RATIO, PNG_RATIO);
    const background = (): void => {
      context.fillStyle = paint("--etv-bg");
      context.fillRect(0, 0, canvas.width, canvas.height);
    };
    context.translate(0, TITLE);
    draw(context, frame, scene, paint);
    context.translate(0, -TITLE);
    context.globalCompositeOperation = "destination-over";
    background();
    context.globalCompositeOperation = "source-over";
    context.fillStyle = paint("--etv-text");
    context.textAlign = "left";
    context.font = `600 ${fontOf(12)}`;
    context.fillText(scene.payload.title, frame.left, TITLE - 6);
    const link = document.createElement("a");
    link.download = `${scene.payload.title.replace(/[^\w.-]+/g, "-")}-profile.png`;
    link.href = canvas.toDataURL("image/png");
    link.click();
  }, [wanted]);
}

/** The worst row of the places near a position. */
function rowNear(payload: Payload, profile: Profile, frame: Frame, x: number): number {
  const column = ownError(payload);
  const badness = column && payload.badness(column.name);
  const middle = placeAt(frame, profile, x);
  let best = middle;
  const first = placeAt(frame, profile, x - NEAR);
  const last = placeAt(frame, profile, x + NEAR);
  for (let place = first; place <= last; place++) {
    if (Math.abs(xOf(frame, profile, place) - x) > NEAR) continue;
    if (badness && badness[profile.rows[place]] > badness[profile.rows[best]]) best = place;
  }
  return profile.rows[best];
}

function figureOf(payload: Payload, name: string, row: number): string | null {
  const column = payload.column(name);
  const value = payload.number(name, row);
  return column && !Number.isNaN(value) ? formatNumber(value, column.format) : null;
}

function Reading({ payload, row }: { payload: Payload; row: number }): JSX.Element {
  const figures: (readonly [string, string | null])[] = [
    ["introduced", figureOf(payload, "introduced_severity", row)],
    ["total", payload.mismatch[row] ? "mismatch" : figureOf(payload, "severity", row)],
    ...payload.beside.map(({ label, suffix }) => [label, figureOf(payload, `severity${suffix}`, row)] as const),
    ["share", figureOf(payload, "attribution", row)],
  ];
  return (
    <>
      <b>{payload.nameOf(row)}</b>
      {figures.map(([name, text]) => text !== null && <span key={name}>{`${name} ${text}`}</span>)}
      <span class="etv-profile-source">{payload.text("source", row)}</span>
    </>
  );
}

function Legend({ payload: { beside, column, label } }: { payload: Payload }): JSX.Element {
  const introduced = column("introduced_severity") !== undefined;
  return (
    <>
      {introduced && (
        <span class="etv-profile-key">
          <i data-tone="introduced" /> introduced
        </span>
      )}
      <span class="etv-profile-key">
        <i data-tone="total" /> {beside.length > 0 ? label : "total"}
      </span>
      {beside.map(({ label }, k) => (
        <span class="etv-profile-key" key={label}>
          <i data-tone="beside" data-dashed={k > 0} /> {label}
        </span>
      ))}
      <span class="etv-profile-key">
        <i data-tone="look" /> deserves a look
      </span>
      <span class="etv-profile-key">
        <i data-tone="fault" /> fault
      </span>
      <span class="etv-profile-about">severity: 1 is ideal rounding or the measured noise</span>
    </>
  );
}

/** From where the row that is pointed at deserves a look, and from where it is a fault. */
function Limits({ payload, profile, frame, row }: { payload: Payload; profile: Profile; frame: Frame; row: number }): JSX.Element {
  const own = ownError(payload);
  const limits = own?.kind === "number" ? own.limits : null;
  return (
    <>
      {limits?.map((ends, side) => {
        const limit = ends[row];
        if (!(limit <= profile.top)) return null;
        const name = ["look", "fault"][side];
        return (
          <span key={name} class="etv-profile-limit" data-limit={name} style={{ top: `${yOf(frame, profile, limit)}px` }}>
            {formatNumber(limit, "metric")}
          </span>
        );
      })}
    </>
  );
}

interface BrushProps {
  from: number;
  to: number;
}

export function ProfileStrip({ payload, profile }: { payload: Payload; profile: Profile }): JSX.Element {
  const { rows, selection, store } = useApp();
  const [box, width] = useWidth<HTMLDivElement>(900);
  const [pointed, setPointed] = useState(-1);
  const [brush, setBrush] = useState<BrushProps | null>(null);
  const attributed = payload.column("attribution") !== undefined;
  const frame = frameOf(width, attributed ? HEIGHT_WITH_SHARES : HEIGHT, attributed);
  const passes = rows.passes.value;
  const scene = useMemo((): Scene => ({ payload, profile, passes }), [payload, profile, passes]);
  const [canvas, probe] = usePicture(frame.width, frame.height, (context, paint) => draw(context, frame, scene, paint), scene);
  usePng(frame, scene, probe);
  const selected = profile.places[selection.row.value] ?? -1;

  const at = (event: PointerEvent): number =>
    event.clientX - (box.current?.getBoundingClientRect().left ?? 0);
  const onPointerMove = (event: PointerEvent): void => setPointed(rowNear(payload, profile, frame, at(event)));
  const onPointerDown = (event: PointerEvent): void => {
    if (event.button !== 0) return;
    const start = at(event);
    let end = start;
    (event.currentTarget as HTMLElement).setPointerCapture(event.pointerId);
    followPointer(
      event,
      event.currentTarget as HTMLElement,
      (dx) => {
        end = start + dx;
        setBrush(Math.abs(dx) > PRESS ? { from: Math.min(start, end), to: Math.max(start, end) } : null);
      },
      () => {
        setBrush(null);
        if (Math.abs(end - start) <= PRESS) return selection.selectRow(rowNear(payload, profile, frame, start));
        const [from, to] = [start, end].sort((a, b) => a - b).map((x) => placeAt(frame, profile, x));
        const { filter } = store.traits;
        filter.value = withSpan(filter.peek(), spanQuery(payload, profile, from, to));
      },
    );
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const by = arrowOf(event)?.across;
    const { filter } = store.traits;
    if (by) {
      const place = profile.places[pointed] ?? -1;
      const next = place < 0 ? Math.max(0, selected) : place + by * (event.shiftKey ? 10 : 1);
      setPointed(profile.rows[Math.min(profile.rows.length - 1, Math.max(0, next))]);
    } else if ((event.key === "Enter" || event.key === " ") && pointed >= 0) selection.selectRow(pointed);
    else if (event.key === "Escape") filter.value = withSpan(filter.peek(), "");
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  const shown = pointed >= 0 && pointed < payload.compared ? pointed : -1;
  return (
    <div class="etv-profile">
      <div class="etv-profile-line">
        <StripSwitch payload={payload} />
        <p class="etv-profile-reading" aria-live="polite">
          {shown >= 0 ? (
            <Reading payload={payload} row={shown} />
          ) : (
            <Legend payload={payload} />
          )}
        </p>
        <AttributionLine payload={payload} />
      </div>
      <div
        class="etv-profile-plot"
        ref={box}
        style={{ height: `${frame.height}px` }}
        role="img"
        aria-label="Severity along the program: arrows read the values, Enter selects, Escape shows all rows"
        tabIndex={0}
        onPointerMove={onPointerMove}
        onPointerDown={onPointerDown}
        onPointerLeave={() => setPointed(-1)}
        onBlur={() => setPointed(-1)}
        onKeyDown={onKeyDown}
      >
        <span ref={probe} hidden />
        <canvas ref={canvas} />
        {selected >= 0 && (
          <span class="etv-profile-selected" style={{ left: `${xOf(frame, profile, selected)}px` }} />
        )}
        {shown >= 0 && (
          <span class="etv-profile-pointed" style={{ left: `${xOf(frame, profile, profile.places[shown])}px` }} />
        )}
        {shown >= 0 && <Limits payload={payload} profile={profile} frame={frame} row={shown} />}
        {brush && (
          <span
            class="etv-profile-brush"
            style={{ left: `${brush.from}px`, width: `${brush.to - brush.from}px` }}
          />
        )}
      </div>
    </div>
  );
}
