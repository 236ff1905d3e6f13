// The buttons of the view.
import type { JSX } from "preact";
import { Icon, type IconName } from "./Icon";

type Props = Omit<JSX.IntrinsicElements["button"], "class"> & { class?: string };

/** `class` adds to what all buttons look like. */
export function Button({ class: more, ...rest }: Props): JSX.Element {
  return <button type="button" class={more ? `etv-button ${more}` : "etv-button"} {...rest} />;
}

/** A button with an icon alone. */
export function IconButton({ label, icon, ...rest }: Props & { label: string; icon: IconName }): JSX.Element {
  return (
    <Button class="etv-square" aria-label={label} {...rest}>
      <Icon name={icon} />
    </Button>
  );
}

export function RetryButton({ retry }: { retry: () => void }): JSX.Element {
  return (
    <Button onClick={retry}>
      <Icon name="retry" /> Retry
    </Button>
  );
}
