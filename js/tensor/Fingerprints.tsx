// What the error looks like: likely classes of bugs as hypotheses, each with its evidence.
import type { JSX } from "preact";
import type { Fingerprint } from "../kernel/contract";
import { formatNumber } from "../data/format";
import { Section } from "./Section";

const SHOWN = 3;

interface Props {
  fingerprints: readonly Fingerprint[];
  /** Shows where a fingerprint is seen. */
  onShow: (fingerprint: Fingerprint) => void;
}

export function Fingerprints({ fingerprints, onShow }: Props): JSX.Element | null {
  if (fingerprints.length === 0) return null;
  return (
    <Section title="Looks like" hint="hypotheses, likeliest first">
      <ul class="etv-fingerprints">
        {fingerprints.slice(0, SHOWN).map((fingerprint) => {
          const { name, score, evidence } = fingerprint;
          const percent = formatNumber(score, "percent");
          return (
            <li key={name} class="etv-fingerprint">
              <button
                type="button"
                class="etv-fingerprint-name"
                data-tip="Show where it is seen"
                onClick={() => onShow(fingerprint)}
              >
                {name}
              </button>
              <span
                class="etv-score"
                role="img"
                aria-label={`score ${percent}`}
                data-tip={`score ${percent}`}
              >
                <span style={{ width: `${Math.min(100, Math.max(0, 100 * score))}%` }} />
              </span>
              <span class="etv-fingerprint-evidence">{evidence}</span>
            </li>
          );
        })}
      </ul>
    </Section>
  );
}
