/** One of a few, as radio buttons that look like one bar. */

import { useId } from "react";

interface ChoiceProps<T extends string | number> {
  label: string;
  value: T;
  options: readonly { value: T; text: string; title?: string }[];
  onChange: (value: T) => void;
}

export function Choice<T extends string | number>({ label, value, options, onChange }: ChoiceProps<T>) {
  const name = useId();
  return (
    <fieldset className="choice">
      <legend>{label}</legend>
      <div className="choice-bar">
        {options.map((option) => (
          <label key={option.value} title={option.title}>
            <input type="radio" name={name} checked={option.value === value} onChange={() => onChange(option.value)} />
            <span>{option.text}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}
