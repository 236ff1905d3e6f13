// Where a value comes from, first of all: its module, and the lines of the model's own code.
import type { JSX } from "preact";
import { useMemo } from "preact/hooks";
import { type Line, excerptOf, nameOfFile } from "../data/code";
import { withTerms } from "../data/query";
import type { Tree } from "../data/tree";
import { useApp } from "../ui/context";
import { CopyButton } from "../ui/CopyButton";

interface Props {
  tree: Tree;
  node: number;
  module: string | null;
  /** "file.py:41", where the stack is not known. */
  source: string | null;
}

function Text({ code, mark }: Line): JSX.Element {
  if (!mark) return <>{code}</>;
  const [from, to] = mark;
  return (
    <>
      {code.slice(0, from)}
      <mark>{code.slice(from, to)}</mark>
      {code.slice(to)}
    </>
  );
}

export function Code({ tree, node, module, source }: Props): JSX.Element | null {
  const { filter } = useApp().store.traits;
  const excerpt = useMemo(() => excerptOf(tree, node), [tree, node]);
  if (!excerpt && !module && !source) return null;
  const file = excerpt && nameOfFile(excerpt.file);
  const number = excerpt?.lines.find(({ own }) => own)?.number;
  const place = source ?? (file && `${file}:${number}`);
  const stack = node >= 0 ? tree.text("stack", node) : null;
  return (
    <div class="etv-code">
      <p class="etv-code-place">
        {place && (
          <span class="etv-mono">
            {place}
            <CopyButton text={place} what="source" />
          </span>
        )}
        {excerpt?.function && <span>in {excerpt.function}</span>}
        {module && (
          <span class="etv-mono">
            {module}
            <CopyButton text={module} what="module" />
          </span>
        )}
      </p>
      {excerpt && excerpt.lines.length > 0 && (
        <pre class="etv-code-lines" tabIndex={0}>
          {excerpt.lines.map((line, k) => (
            <span
              key={line.number}
              class="etv-code-line"
              data-own={line.own ? true : undefined}
              data-after-gap={k > 0 && excerpt.lines[k - 1].number < line.number - 1 ? true : undefined}
            >
              <button
                type="button"
                class="etv-code-number"
                aria-label={`Only rows of line ${line.number}`}
                data-tip={`Only rows of ${file}:${line.number}`}
                onClick={() => (filter.value = withTerms(filter.peek(), ["source"], `source:${file}:${line.number}`))}
              >
                {line.number}
              </button>
              <code>
                <Text {...line} />
              </code>
            </span>
          ))}
        </pre>
      )}
      {stack && (
        <details class="etv-stack">
          <summary>Stack trace</summary>
          <CopyButton text={stack} what="stack trace" />
          <pre tabIndex={0}>{stack}</pre>
        </details>
      )}
    </div>
  );
}
