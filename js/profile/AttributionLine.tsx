// Which operators caused the error of an output: the button that computes it, its progress, and whose shares the profile
// draws. Their sum is the check: it is near 100 % where the first-order method holds.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { decodeNumber } from "../kernel/codec";
import type { Attribution } from "../kernel/contract";
import { formatCount, formatNumber } from "../data/format";
import type { Payload } from "../data/payload";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { Icon, LevelIcon } from "../ui/Icon";
import { JobLine } from "../ui/JobLine";
import { Select } from "../ui/Select";

const ABOUT =
  "Which operator caused how much of the final output's error: the error that each operator introduces, " +
  "carried to the output by one backward pass through the reference";

/** Sums from 80 to 120 % say that the shares can be trusted. */
const TRUSTED = 0.2;

/** Shares of this size in all say that errors of opposite sign offset each other. */
const CANCELS = 1.5;

interface SumProps {
  attribution: Attribution;
  /** Sum of the shares' sizes, whatever their sign. */
  size: number;
}

function Sum({ attribution, size }: SumProps): JSX.Element {
  const sum = decodeNumber(attribution.sum) ?? NaN;
  const off = !(Math.abs(sum - 1) <= TRUSTED);
  const methods = Object.entries(attribution.methods).map(
    ([name, rows]) => `${formatCount(rows)} by ${name}`,
  );
  const tip = [
    "The shares add up to this much of the error: the nearer to 100 %, the better the first-order method holds.",
    size > CANCELS &&
      `Errors cancel each other: the sizes of all shares add up to ${formatNumber(size, "percent")}.`,
    attribution.note,
    `Rows: ${methods.join(", ")}.`,
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
  const { output, about, outputs, exact } = attribution;
  if (output === null) {
    return <span class="etv-attribution-output">Shift of {about}</span>;
  }
  if (exact) {
    return (
      <span
        class="etv-attribution-output"
        tabIndex={0}
        data-tip="Runtime and reference are the same, bit for bit. The attributed error is their distance from the reference in float64."
      >
        Output {output} is exact; distance to float64:
      </span>
    );
  }
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
      <Select
        label="Output whose error is attributed"
        disabled={jobs.busy}
        choices={outputs.map((text, index) => ({ name: String(index), text }))}
        value={String(output)}
        onChange={(index) => jobs.start("attribution", { output: Number(index) })}
      />
    </label>
  );
}

function Shares({ payload, attribution }: { payload: Payload; attribution: Attribution }): JSX.Element {
  const column = payload.column("attribution");
  const size = useMemo(() => {
    const shares = column?.kind === "number" ? column.values : new Float64Array(0);
    return shares.reduce((all, share) => all + (Math.abs(share) || 0), 0);
  }, [column]);
  return (
    <span class="etv-attribution">
      <OutputChoice attribution={attribution} />
      {size > 0 ? (
        <Sum attribution={attribution} size={size} />
      ) : (
        <span class="etv-section-hint">{attribution.note || "No operator has a share in it."}</span>
      )}
    </span>
  );
}

/** A language model's call is judged by the margin of two tokens, or else by all logits. */
const attributed = (payload: Payload): string =>
  payload.tokens ? "the shift of the logits" : "the output's error";

/** The kernel chooses the worst output first. Nothing in a report, when it was pressed, or when there is nothing to attribute. */
function AttributeButton({ payload }: { payload: Payload }): JSX.Element | null {
  const { jobs, source } = useApp().store;
  if (!source.kernel || payload.attribution || payload.compared === 0 || jobs.of("attribution")) return null;
  return (
    <Button
      class="etv-attribute"
      disabled={jobs.busy}
      data-tip={ABOUT}
      onClick={() => jobs.start("attribution", {})}
    >
      <Icon name="share" /> Attribute {attributed(payload)}
    </Button>
  );
}

export function AttributionLine({ payload }: { payload: Payload }): JSX.Element {
  const { jobs } = useApp().store;
  const { attribution } = payload;
  const job = jobs.of("attribution");
  return (
    <>
      {attribution && <Shares payload={payload} attribution={attribution} />}
      <AttributeButton payload={payload} />
      {job && (
        <JobLine
          job={job}
          doing={`Attributing ${attributed(payload)}`}
          retry={() => jobs.start("attribution", job.params)}
        />
      )}
    </>
  );
}
