// One box for everything that is looked for: rows by words, fields and limits, with what can come next; after ">"
// commands, with their keys.
import type { JSX } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { type Completion, completions } from "../data/completion";
import { readQuery } from "../data/filter";
import type { Payload } from "../data/payload";
import { commandsLike } from "../state/commands";
import { useApp } from "../ui/context";
import { Icon } from "../ui/Icon";
import { focusRow } from "../ui/keys";

interface Offer {
  id: string;
  text: string;
  about: string;
  take: () => void;
}

const PLACEHOLDER = "Search: words, op:softmax, severity>10, is:fault, > commands";

function useOffers(payload: Payload, at: number): Offer[] {
  const app = useApp();
  const { filter } = app.store.traits;
  const { palette } = app.view;
  const typed = palette.value;
  if (typed !== null) {
    return commandsLike(app, typed).map((command) => ({
      id: command.id,
      text: command.title,
      about: command.key ?? "",
      take: () => {
        palette.value = null;
        command.run(app, "");
      },
    }));
  }
  return completions(payload, filter.value, at).map((one: Completion) => ({
    id: one.text,
    text: one.text,
    about: one.about,
    take: () => void (filter.value = one.whole),
  }));
}

export function SearchBox({ payload }: { payload: Payload }): JSX.Element {
  const app = useApp();
  const { filter } = app.store.traits;
  const { palette, searching } = app.view;
  const input = useRef<HTMLInputElement>(null);
  const list = useId();
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState(-1);
  const offers = useOffers(payload, input.current?.selectionStart ?? filter.value.length);
  const commands = palette.value !== null;
  const { problems } = commands ? { problems: [] } : readQuery(payload, filter.value);
  const wanted = searching.value;
  const heard = useRef(wanted);
  // Before the next key, which would be the table's.
  useLayoutEffect(() => {
    if (wanted === heard.current) return;
    heard.current = wanted;
    input.current?.focus();
    const { length } = input.current?.value ?? "";
    // What is typed replaces a query, and follows the ">" of a command.
    input.current?.setSelectionRange(palette.peek() === null ? 0 : length, length);
    setOpen(true);
  }, [wanted]);

  const close = (): void => {
    setOpen(false);
    setChosen(-1);
    palette.value = null;
  };
  const take = (offer: Offer): void => {
    offer.take();
    setChosen(-1);
    if (commands) close();
    else input.current?.focus();
  };
  const onInput = (text: string): void => {
    if (text.startsWith(">")) palette.value = text.slice(1);
    else {
      palette.value = null;
      filter.value = text;
    }
    setOpen(true);
    setChosen(text.startsWith(">") ? 0 : -1);
  };
  const listed = open && offers.length > 0;
  const onKeyDown = (event: KeyboardEvent): void => {
    const last = offers.length - 1;
    if (event.key === "Escape") {
      if (!listed) focusRow(input.current);
      close();
    } else if (event.key === "ArrowDown" && open) setChosen(Math.min(last, chosen + 1));
    else if (event.key === "ArrowUp" && open) setChosen(Math.max(-1, chosen - 1));
    else if (event.key === "Enter" || (event.key === "Tab" && open && chosen >= 0)) {
      const offer = offers[commands && chosen < 0 ? 0 : chosen];
      if (open && offer) take(offer);
      else setOpen(false);
    } else return;
    event.preventDefault();
  };
  return (
    <div class="etv-search" data-commands={commands ? true : undefined}>
      <Icon name="search" />
      <input
        type="search"
        list={undefined}
        ref={input}
        role="combobox"
        aria-label="Search rows"
        aria-expanded={listed}
        aria-controls={list}
        aria-autocomplete="list"
        aria-activedescendant={listed && chosen >= 0 ? `${list}-${chosen}` : undefined}
        aria-invalid={problems.length > 0}
        placeholder={PLACEHOLDER}
        spellcheck={false}
        autocomplete="off"
        value={commands ? `>${palette.value}` : filter.value}
        onInput={(event) => onInput(event.currentTarget.value)}
        onFocus={() => setOpen(true)}
        onBlur={close}
        onKeyDown={onKeyDown}
      />
      {listed && (
        <ul class="etv-offers" id={list} role="listbox" aria-label={commands ? "Commands" : "Completions"}>
          {offers.slice(0, 12).map((offer, k) => (
            <li
              key={offer.id}
              id={`${list}-${k}`}
              class="etv-offer"
              role="option"
              aria-selected={k === chosen}
              onPointerDown={(event) => {
                event.preventDefault();
                take(offer);
              }}
            >
              <span class="etv-offer-text">{offer.text}</span>
              <span class={commands && offer.about ? "etv-offer-about etv-key-cap" : "etv-offer-about"}>{offer.about}</span>
            </li>
          ))}
        </ul>
      )}
      {problems.length > 0 && (
        <p class="etv-search-problem" role="status">
          {problems.join(" · ")}
        </p>
      )}
    </div>
  );
}
