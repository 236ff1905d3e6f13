// Which axis of a tensor.
import type { JSX } from "preact";
import { Select } from "../ui/Select";

interface Props {
  text: string;
  label: string;
  shape: readonly number[];
  axis: number;
  disabled: boolean;
  onChange: (axis: number) => void;
}

export function AxisSelect({ text, label, shape, axis, disabled, onChange }: Props): JSX.Element {
  return (
    <label class="etv-axis">
      {text}
      <Select
        label={label}
        disabled={disabled}
        choices={shape.map((size, at) => ({ name: String(at), text: `axis ${at} (${size})` }))}
        value={String(axis)}
        onChange={(name) => onChange(Number(name))}
      />
    </label>
  );
}
