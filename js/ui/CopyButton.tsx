// A small button that puts a text on the clipboard and says that it did.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Icon } from "./Icon";

const SAID_FOR_MS = 1500;

async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

export function CopyButton({ text, what }: { text: string; what: string }): JSX.Element {
  const [said, setSaid] = useState<string | null>(null);
  useEffect(() => {
    if (said === null) return;
    const timer = setTimeout(() => setSaid(null), SAID_FOR_MS);
    return () => clearTimeout(timer);
  }, [said]);
  const onClick = async (event: Event): Promise<void> => {
    event.stopPropagation();
    setSaid((await copy(text)) ? "Copied" : "Copying is not allowed here");
  };
  return (
    <button
      type="button"
      class="etv-copy"
      aria-label={said ?? `Copy ${what}`}
      data-tip={said ?? `Copy ${what}`}
      data-done={said === "Copied"}
      onClick={onClick}
    >
      <Icon name={said === "Copied" ? "ok" : "copy"} />
    </button>
  );
}
