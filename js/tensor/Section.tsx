// A titled part of the tensor pane.
import type { ComponentChildren, JSX } from "preact";

interface Props {
  title: string;
  hint?: string | undefined;
  aside?: ComponentChildren;
  children: ComponentChildren;
}

export function Section({ title, hint, aside, children }: Props): JSX.Element {
  return (
    <section class="etv-section">
      <div class="etv-section-head">
        <h3 class="etv-section-title">{title}</h3>
        {hint && <span class="etv-section-hint">{hint}</span>}
        <span class="etv-spring" />
        {aside}
      </div>
      {children}
    </section>
  );
}
