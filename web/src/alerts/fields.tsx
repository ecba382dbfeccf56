/** The fields that a rule's sentence is made of. Each keeps what is typed as it is typed, and tells only what can be read. */

import { useEffect, useId, useRef, useState } from "react";
import type { Span } from "../api/types";
import { isNone, splitNames } from "./draft";
import { fieldUnit, fromField, toField } from "./values";

interface NumberFieldProps {
  label: string;
  value: number | null;
  unit: string;
  onChange: (value: number | null) => void;
  /** Whether nothing is an answer too. */
  isOptional?: boolean;
  placeholder?: string;
}

export function NumberField({ label, value, unit, onChange, isOptional = false, placeholder }: NumberFieldProps) {
  const [text, setText] = useState(() => toField(value, unit));
  const isBad = fromField(text, unit) === null && !(isOptional && text.trim() === "");
  // Another rule, or the same number in another unit; what was typed stays while it says the same.
  // biome-ignore lint/correctness/useExhaustiveDependencies: the text is what is being typed
  useEffect(() => {
    if (fromField(text, unit) !== value) setText(toField(value, unit));
  }, [value, unit]);
  const shown = fieldUnit(unit);
  return (
    <span className="number-field">
      <input
        aria-label={shown ? `${label}, in ${shown}` : label}
        aria-invalid={isBad || undefined}
        inputMode="text"
        autoComplete="off"
        placeholder={placeholder}
        value={text}
        size={Math.max(5, text.length)}
        onChange={(event) => {
          setText(event.target.value);
          const read = fromField(event.target.value, unit);
          if (read !== null) onChange(read);
          else if (isOptional && event.target.value.trim() === "") onChange(null);
        }}
        onBlur={() => isBad && setText(toField(value, unit))}
      />
      {shown && <span aria-hidden="true">{shown}</span>}
    </span>
  );
}

interface InlineSelectProps {
  label: string;
  value: string;
  options: readonly { id: string; title: string }[];
  onChange: (value: string) => void;
}

export function InlineSelect({ label, value, options, onChange }: InlineSelectProps) {
  return (
    <select
      className="select inline-select"
      aria-label={label}
      value={value}
      onChange={(event) => onChange(event.target.value)}
    >
      {!options.some(({ id }) => id === value) && <option value={value}>{value}</option>}
      {options.map(({ id, title }) => (
        <option key={id} value={id}>
          {title}
        </option>
      ))}
    </select>
  );
}

const SPAN_UNITS = [
  { id: "steps", title: "steps" },
  { id: "seconds", title: "seconds" },
] as const;

interface SpanFieldProps {
  label: string;
  value: Span | undefined;
  onChange: (span: Span) => void;
}

/** Steps, or seconds of the training's own clock; nothing typed: none at all. */
export function SpanField({ label, value, onChange }: SpanFieldProps) {
  const unit = value?.seconds != null ? "seconds" : "steps";
  const amount = (unit === "seconds" ? value?.seconds : value?.steps) ?? null;
  const change = (next: number | null, inUnit: string) =>
    onChange(next === null ? {} : inUnit === "seconds" ? { seconds: next } : { steps: Math.round(next) });
  return (
    <span className="span-field">
      <NumberField
        label={label}
        value={isNone(value) ? null : amount}
        unit=""
        isOptional
        placeholder="0"
        onChange={(next) => change(next, unit)}
      />
      <InlineSelect
        label={`Unit of: ${label}`}
        value={unit}
        options={SPAN_UNITS}
        onChange={(next) => change(amount ?? 0, next)}
      />
    </span>
  );
}

interface PickFieldProps {
  label: string;
  value: string;
  /** Titles tell apart. */
  items: readonly { id: string; title: string }[];
  onChange: (id: string) => void;
}

/** Chosen from what there is by title or id, or typed: a series that no run has logged yet can be watched too. */
export function PickField({ label, value, items, onChange }: PickFieldProps) {
  const list = useId();
  const title = items.find(({ id }) => id === value)?.title ?? value;
  // Null: not being typed in. It begins empty, so that the whole list is offered and not what goes with the old name.
  const [text, setText] = useState<string | null>(null);
  const find = (typed: string) => items.find((item) => item.title === typed || item.id === typed)?.id;
  return (
    <>
      <input
        className="inline-input metric-field"
        aria-label={label}
        list={list}
        autoComplete="off"
        spellCheck={false}
        placeholder={title}
        value={text ?? title}
        onFocus={() => setText("")}
        onChange={(event) => {
          const typed = event.target.value;
          setText(typed);
          const found = find(typed);
          if (found !== undefined) onChange(found);
        }}
        onBlur={() => {
          const typed = text?.trim() ?? "";
          if (typed !== "" && typed !== value) onChange(find(typed) ?? typed);
          setText(null);
        }}
      />
      <datalist id={list}>
        {items.map((item) => (
          <option key={item.id} value={item.title}>
            {item.id}
          </option>
        ))}
      </datalist>
    </>
  );
}

interface NamesFieldProps {
  label: string;
  value: readonly string[];
  placeholder: string;
  hint?: string;
  /** Names that there are, offered while typing. */
  known?: readonly string[];
  onChange: (names: string[]) => void;
}

/** Several names or patterns in one field, separated by commas. */
export function NamesField({ label, value, placeholder, hint, known = [], onChange }: NamesFieldProps) {
  const list = useId();
  const [text, setText] = useState(value.join(", "));
  const told = useRef(value);
  useEffect(() => {
    if (value !== told.current) setText(value.join(", "));
    told.current = value;
  }, [value]);
  return (
    <label className="field">
      <span>{label}</span>
      <input
        value={text}
        placeholder={placeholder}
        list={known.length > 0 ? list : undefined}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => {
          setText(event.target.value);
          const names = splitNames(event.target.value);
          told.current = names;
          onChange(names);
        }}
      />
      {known.length > 0 && (
        <datalist id={list}>
          {known.map((name) => (
            <option key={name} value={name} />
          ))}
        </datalist>
      )}
      {hint && <small className="muted">{hint}</small>}
    </label>
  );
}
