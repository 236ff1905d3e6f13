// Which operators caused the error of an output: the button that computes it, its progress, and the
// shares as one bar. Their sum is the check: it is near 100 % where the first-order method holds.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { decodeNumber } from "../state/codec";
import type { Attribution } from "../state/contract";
import { formatCount, formatNumber } from "../state/format";
import { jobOf } from "../state/jobs";
import type { Payload } from "../state/payload";
import { segmentsOf } from "../state/shares";
import { useApp } from "../ui/context";
import { Icon, LevelIcon } from "../ui/Icon";
import { JobLine } from "../ui/JobLine";
import { Segments } from "./Segments";

const ABOUT =
  "Which operator caused how much of the final output's error: the error that each operator introduces, " +
  "carried to the output by one backward pass through the reference";

/** Sums from 80 to 120 % say that the shares can be trusted. */
const TRUSTED = 0.2;

function methodsText(methods: Record<string, number>): string {
  return Object.entries(methods)
    .map(([name, rows]) => `${formatCount(rows)} by ${name}`)
    .join(", ");
}

/** Shares of this size in all say that errors of opposite sign offset each other. */
const CANCELS = 1.5;

function cancelText(size: number): string {
  if (!(size > CANCELS)) return "";
  return `Errors cancel each other: the sizes of all shares add up to ${formatNumber(size, "percent")}.`;
}

interface SumProps {
  attribution: Attribution;
  /** Sum of the shares' sizes, whatever their sign. */
  size: number;
}

function Sum({ attribution, size }: SumProps): JSX.Element {
  const sum = decodeNumber(attribution.sum) ?? NaN;
  const off = !(Math.abs(sum - 1) <= TRUSTED);
  const tip = [
    "The shares add up to this much of the error: the nearer to 100 %, the better the first-order method holds.",
    cancelText(size),
    attribution.note,
    `Rows: ${methodsText(attribution.methods)}.`,
  ];
  return (
    <span
      class="etv-sum"
      data-level={off ? "warn" : "ok"}
      tabIndex={0}
      data-tip={tip.filter(Boolean).join("\n")}
    >
      {off && <LevelIcon level="warn" />}Σ {Number.isNaN(sum) ? "not known" : formatNumber(sum, "percent")}
    </span>
  );
}

function OutputChoice({ attribution }: { attribution: Attribution }): JSX.Element {
  const { jobs, source } = useApp().store;
  const { output, outputs } = attribution;
  if (outputs.length < 2 || !source.kernel) {
    return (
      <span class="etv-attribution-output" data-tip={outputs[output]}>
        Error of output {outputs[output] ?? output}
      </span>
    );
  }
  return (
    <label class="etv-attribution-output">
      Error of output
      <select
        class="etv-select"
        aria-label="Output whose error is attributed"
        disabled={jobs.busy}
        value={String(output)}
        onChange={(event) => jobs.start("attribution", { output: Number(event.currentTarget.value) })}
      >
        {outputs.map((text, index) => (
          <option key={index} value={index}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

function Shares({ payload, attribution }: { payload: Payload; attribution: Attribution }): JSX.Element {
  const column = payload.column("attribution");
  const segments = useMemo(() => (column?.kind === "number" ? segmentsOf(column.values) : []), [column]);
  return (
    <div class="etv-attribution">
      <OutputChoice attribution={attribution} />
      {segments.length > 0 ? (
        <>
          <Segments payload={payload} segments={segments} />
          <Sum
            attribution={attribution}
            size={segments.reduce((all, { share }) => all + Math.abs(share), 0)}
          />
        </>
      ) : (
        <span class="etv-section-hint">{attribution.note || "No operator has a share in it."}</span>
      )}
    </div>
  );
}

export function AttributionBar({ payload }: { payload: Payload }): JSX.Element | null {
  const { jobs } = useApp().store;
  const { attribution } = payload;
  const job = jobOf(jobs.current.value, "attribution");
  const line = job && (
    <JobLine
      job={job}
      doing="Attributing the output's error"
      retry={() => jobs.start("attribution", job.params)}
    />
  );
  if (!attribution) return line;
  return (
    <>
      <Shares payload={payload} attribution={attribution} />
      {line}
    </>
  );
}

/** The kernel chooses the worst output first. Nothing in a report, when it was pressed, or when there is nothing to attribute. */
export function AttributeButton({ payload }: { payload: Payload }): JSX.Element | null {
  const { jobs, source } = useApp().store;
  if (!source.kernel || payload.attribution || payload.compared === 0) return null;
  if (jobOf(jobs.current.value, "attribution")) return null;
  return (
    <button
      type="button"
      class="etv-button etv-attribute"
      disabled={jobs.busy}
      data-tip={ABOUT}
      onClick={() => jobs.start("attribution", {})}
    >
      <Icon name="share" /> Attribute the output's error
    </button>
  );
}
