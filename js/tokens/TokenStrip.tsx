// The tokens of a language model above the rows of the call that is open: coloured by KL divergence, with a mark at each
// flip that is hollow where noise explains it; below them maps of layers and of the cache, a column for each call.
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { formatMetric } from "../data/format";
import type { Payload } from "../data/payload";
import type { Flip, Tokens } from "../data/tokens";
import { Button } from "../ui/Button";
import { useApp } from "../ui/context";
import { JobLine } from "../ui/JobLine";
import { arrowOf, keysOf, movedTo } from "../ui/keys";
import { memo } from "../ui/memo";
import { Select } from "../ui/Select";
import { PortTable } from "./PortTable";
import { StepMap } from "./StepMap";

/** How far Page Up and Page Down go. */
const PAGE = 16;

interface TokenProps {
  tokens: Tokens;
  row: number;
  selected: boolean;
  onChoose: (row: number) => void;
}

const Token = memo<TokenProps>(({ tokens, row, selected, onChoose }) => {
  const flip = tokens.flip(row);
  return (
    <span
      class="etv-token"
      role="option"
      id={`etv-token-${row}`}
      aria-selected={selected}
      aria-label={tokens.about(row)}
      data-token={row}
      data-generated={tokens.generated[row] ? true : undefined}
      data-fault={tokens.atFault[row] ? true : undefined}
      style={{ "--etv-heat": tokens.heat(row).toFixed(3) }}
      data-tip={tokens.about(row).replaceAll("; ", "\n")}
      onClick={() => onChoose(row)}
    >
      {flip && <i class="etv-flip" data-flip={flip} />}
      <bdi>{tokens.text(row)}</bdi>
    </span>
  );
});

const FLIPS: [Exclude<Flip, "">, string][] = [
  ["fault", "flip"],
  ["explained", "flip that noise explains"],
];

function Legend({ tokens }: { tokens: Tokens }): JSX.Element {
  const [low, high] = tokens.range ?? [0, 0];
  return (
    <span class="etv-token-legend">
      KL {formatMetric(low, 2)} <i class="etv-token-ramp" /> {formatMetric(high, 2)} nats
      {FLIPS.map(([flip, text]) => (
        <span key={flip}>
          <i class="etv-flip" data-flip={flip} /> {text}
        </span>
      ))}
    </span>
  );
}

function Strip({ tokens, prompt }: { tokens: Tokens; prompt: number }): JSX.Element {
  const { tokens: state } = useApp();
  const box = useRef<HTMLDivElement>(null);
  const selected = state.row.value;
  useEffect(() => {
    const list = box.current;
    const token = list?.querySelector<HTMLElement>('[aria-selected="true"]');
    if (!list || !token) return;
    const [top, bottom] = [token.offsetTop, token.offsetTop + token.offsetHeight];
    if (top < list.scrollTop) list.scrollTop = top;
    else if (bottom > list.scrollTop + list.clientHeight) list.scrollTop = bottom - list.clientHeight;
  }, [selected]);
  const rows: number[] = [];
  for (let row = 0; row < tokens.rows; row++) if (tokens.prompt[row] === prompt) rows.push(row);
  const onKeyDown = keysOf((event) => {
    const at = rows.indexOf(state.row.peek());
    const by = arrowOf(event)?.across;
    if (event.key === "Enter" || event.key === " ") state.open();
    else {
      const to = by ? at + by : movedTo(event.key, at, rows.length - 1, PAGE);
      if (to === null || rows[to] === undefined) return false;
      state.choose(rows[to], true);
    }
    return true;
  });
  return (
    <div
      class="etv-token-list"
      role="listbox"
      aria-label="Tokens"
      aria-activedescendant={`etv-token-${selected}`}
      aria-orientation="horizontal"
      tabIndex={0}
      ref={box}
      onKeyDown={onKeyDown}
    >
      {rows.map((row) => (
        <Token key={row} tokens={tokens} row={row} selected={row === selected} onChoose={state.choose} />
      ))}
    </div>
  );
}

/** What is known of the token that is looked at, and how its call is opened. */
function Reading({ payload, tokens }: { payload: Payload; tokens: Tokens }): JSX.Element | null {
  const { store, tokens: state } = useApp();
  const row = state.row.value;
  const job = store.jobs.of("method");
  if (row < 0) return null;
  const name = `${tokens.prompt[row]}:${tokens.step[row]}`;
  const held = store.source.kernel || payload.methods.includes(name);
  return (
    <div class="etv-token-reading">
      <p aria-live="polite">{tokens.about(row)}</p>
      {job && (
        <JobLine job={job} doing={`Running call ${String(job.params.method).replace(/^.*:/, "")} with every value logged`} retry={() => state.open()} />
      )}
      {!job && !state.isOpen.value && held && <Button onClick={() => state.open()}>Open call {tokens.step[row]}</Button>}
      {!held && <span>This report does not hold that call. A notebook can open it.</span>}
    </div>
  );
}

export function TokenStrip({ payload, tokens }: { payload: Payload; tokens: Tokens }): JSX.Element {
  const { store, tokens: state } = useApp();
  const row = state.row.value;
  const prompt = tokens.prompt[row] ?? 0;
  const layers = tokens.layers.find((map) => map.prompt === prompt);
  const cache = tokens.cache.find((map) => map.prompt === prompt);
  const last = tokens.step.reduce((most, step, at) => (tokens.prompt[at] === prompt ? Math.max(most, step) : most), 0);
  const whole = layers !== undefined && layers.values.every((value) => !Number.isNaN(value));
  const [headline, ...more] = tokens.headline.split("\n");
  return (
    <section class="etv-tokens" aria-label="Tokens of the language model">
      <div class="etv-token-head">
        <strong data-tip={more.join("\n")} tabIndex={0}>
          {headline}
        </strong>
        {tokens.prompts.length > 1 && (
          <Select
            label="Prompt that is shown"
            choices={tokens.prompts.map((one) => ({ name: String(one), text: `prompt ${one}` }))}
            value={String(prompt)}
            onChange={(name) => state.choose(tokens.prompt.indexOf(Number(name)))}
          />
        )}
        <Legend tokens={tokens} />
      </div>
      {tokens.card && <PortTable card={tokens.card} />}
      <Strip tokens={tokens} prompt={prompt} />
      <Reading payload={payload} tokens={tokens} />
      {layers && (
        <StepMap
          map={layers}
          title="Layers by call"
          value="worst introduced severity"
          column="call"
          chosen={tokens.step[row]}
          onChoose={(step) => state.choose(tokens.rowOf(prompt, step))}
        />
      )}
      {!whole && store.source.kernel && (
        <Button
          class="etv-quiet"
          disabled={store.jobs.busy}
          data-tip="Runs all calls of the prompt again with every value logged, for the map of layers by call"
          onClick={() => state.openCall(prompt, last)}
        >
          Log every call of this prompt
        </Button>
      )}
      {cache && (
        <StepMap
          map={cache}
          title="Cache by position"
          value="severity of keys and values"
          column="position"
          chosen={tokens.position[row]}
          onChoose={(position) => state.choose(tokens.position.findIndex((at, k) => at === position && tokens.prompt[k] === prompt))}
        />
      )}
    </section>
  );
}

/** Below the tokens while no call is open. */
export function NoCall(): JSX.Element {
  return (
    <div class="etv-empty">
      <p class="etv-empty-title">No call is open</p>
      <p>Click a token: its call runs again with every value logged, and its rows are shown here. Keys [ and ] go from token to token.</p>
    </div>
  );
}
