/** A rule as a sentence that is filled in, beside it what it would have done. */

import { useQuery } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useMemo, useState } from "react";
import { runsQuery } from "../api/queries";
import type { Rule, RuleItem, RuleList, RuleProblem, RuleVocabulary } from "../api/types";
import { useDebounced } from "../lib/hooks";
import { Link, navigate, usePlace } from "../lib/router";
import { Choice } from "../ui/choice";
import { FormError } from "../ui/forms";
import { CheckMenu } from "../ui/overlays";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { toast } from "../ui/toast";
import { Preview } from "./Backtest";
import { fullRule, idFor, named, newRule, withAggregation, withMetric } from "./draft";
import { InlineSelect, NamesField, NumberField, PickField, SpanField } from "./fields";
import { channelsQuery, checkQuery, presetsQuery, rulesQuery, useSaveRule, vocabularyQuery } from "./queries";
import { DeleteRuleDialog } from "./RulesTab";
import { comparedUnit } from "./values";

export function RuleEditorPage({ id }: { id: string }) {
  const { query } = usePlace();
  const preset = query.get("preset") ?? "";
  const from = query.get("from") ?? "";
  const { data: rules, error: rulesError, refetch: refetchRules } = useQuery(rulesQuery);
  const { data: vocabulary, error, refetch } = useQuery(vocabularyQuery);
  const { data: presets } = useQuery({ ...presetsQuery, enabled: preset !== "" });
  const failed = rulesError ?? error;
  if (!rules || !vocabulary || (preset && !presets)) {
    const retry = () => (rulesError ? refetchRules() : refetch());
    return failed ? <FailedState error={failed} onRetry={retry} /> : <Loading what="the rule" />;
  }
  const item = id === "new" ? null : (rules.rules.find(({ rule }) => rule.id === id) ?? undefined);
  if (item === undefined) {
    return (
      <EmptyState title="There is no such rule">
        <p>
          There is no rule with the id <code>{id}</code> (now).
        </p>
        <Link to="/alerts/rules" className="button primary">
          All rules
        </Link>
      </EmptyState>
    );
  }
  const source = from ? rules.rules.find(({ rule }) => rule.id === from)?.rule : undefined;
  const chosen = presets?.presets.find(({ rule }) => (rule.preset || rule.id) === preset)?.rule;
  const begin = item
    ? fullRule(item.rule)
    : source
      ? { ...fullRule(source), id: "", name: `${source.name}, copy` }
      : chosen
        ? fullRule(chosen)
        : newRule();
  return <Editor item={item} begin={begin} rules={rules} vocabulary={vocabulary} run={query.get("run")} />;
}

interface EditorProps {
  /** The rule that is changed; null: a new one. */
  item: RuleItem | null;
  begin: Rule;
  rules: RuleList;
  vocabulary: RuleVocabulary;
  /** A run to try it on. */
  run: string | null;
}

const CHECK_MS = 250;
const PLACEHOLDER_ID = "new-rule";

function Editor({ item, begin, rules, vocabulary, run }: EditorProps) {
  const [rule, setRule] = useState(begin);
  const [deleting, setDeleting] = useState(false);
  const save = useSaveRule();
  // What is left empty is filled in when it is saved: until then it must not count as wrong.
  const whole = useMemo(
    () => ({ ...rule, id: rule.id || PLACEHOLDER_ID, name: rule.name.trim() || "New rule" }),
    [rule],
  );
  const { data: check } = useQuery(checkQuery(useDebounced(whole, CHECK_MS)));
  const change = (changes: Partial<Rule>) => setRule((before) => ({ ...before, ...changes }));
  const problems = check?.problems ?? [];
  const sentence = check?.sentence ?? "";

  const submit = (event: FormEvent) => {
    event.preventDefault();
    const name = rule.name.trim() || sentence.slice(0, 200) || "Rule";
    const taken = new Set(rules.rules.map((one) => one.rule.id));
    const id = item ? rule.id : rule.id && !taken.has(rule.id) ? rule.id : idFor(name, taken);
    save.mutate(
      { rule: { ...rule, name, id }, version: item ? item.version : null },
      {
        onSuccess: () => {
          toast(item ? `Saved ${name}` : `${name} is watching`);
          navigate("/alerts/rules");
        },
      },
    );
  };
  const part = { rule, change, vocabulary, problems };
  return (
    <div className="editor">
      <form className="editor-form" onSubmit={submit} noValidate>
        <SentencePart {...part} />
        <ScopePart {...part} />
        <TellingPart {...part} rules={rules} />
        <NamePart {...part} sentence={sentence} />
        <Problems problems={problems.filter(({ where }) => !isShown(where))} />
        <FormError error={save.error} />
        <div className="editor-buttons">
          <button type="submit" className="button primary" disabled={save.isPending || problems.length > 0}>
            {item ? "Save" : "Make rule"}
          </button>
          <Link to="/alerts/rules" className="button">
            Cancel
          </Link>
          {item && (
            <button type="button" className="button button-danger" onClick={() => setDeleting(true)}>
              Delete…
            </button>
          )}
        </div>
      </form>
      <Preview rule={whole} isSound={check?.problems.length === 0} run={run} />
      {deleting && item && <DeleteRuleDialog item={item} onClose={() => setDeleting(false)} />}
    </div>
  );
}

interface PartProps {
  rule: Rule;
  change: (changes: Partial<Rule>) => void;
  vocabulary: RuleVocabulary;
  problems: RuleProblem[];
}

/** Fields whose problems stand beside them; all others stand above the buttons. */
const PLACES = {
  sentence: ["metric", "aggregation", "argument", "window", "comparison", "threshold", "clear", "hold", "baseline"],
  scope: ["scope", "group_by"],
  telling: ["channels", "repeat_s", "inhibited_by", "keep_firing", "severity"],
  name: ["name", "message", "reason", "runbook"],
} as const;

/** `scope.layers[0]` is of `scope`. */
function fieldOf(where: string): string {
  return /^[a-z_]+/.exec(where)?.[0] ?? "";
}

function isShown(where: string): boolean {
  return Object.values(PLACES).some((fields) => (fields as readonly string[]).includes(fieldOf(where)));
}

function Problems({ problems, of }: { problems: RuleProblem[]; of?: readonly string[] }) {
  const shown = of ? problems.filter(({ where }) => of.includes(fieldOf(where))) : problems;
  if (shown.length === 0) return null;
  return (
    <ul className="problems" role="alert">
      {shown.map(({ where, text }) => (
        <li key={`${where} ${text}`} className="form-error">
          {text}
        </li>
      ))}
    </ul>
  );
}

const COMPARISONS = [
  { id: ">", title: "above" },
  { id: ">=", title: "at or above" },
  { id: "<", title: "below" },
  { id: "<=", title: "at or below" },
] as const;

function SentencePart({ rule, change, vocabulary, problems }: PartProps) {
  const metric = vocabulary.metrics.find(({ id }) => id === rule.metric);
  const aggregation = vocabulary.aggregations.find(({ id }) => id === rule.aggregation);
  const fitting = vocabulary.aggregations.filter(
    ({ id }) => !metric || metric.aggregations.length === 0 || metric.aggregations.includes(id),
  );
  const unit = comparedUnit(metric?.unit ?? "", aggregation, rule.window.seconds != null);
  const isBelow = rule.comparison.startsWith("<");
  return (
    <section className="card editor-card" aria-label="When it fires">
      <div className="rule-sentence">
        <span>When</span>
        <PickField
          label="Metric"
          value={rule.metric}
          items={vocabulary.metrics}
          onChange={(id) => change(withMetric(rule, id, vocabulary))}
        />
        <InlineSelect
          label="Aggregation"
          value={rule.aggregation}
          options={fitting}
          onChange={(id) => change(withAggregation(rule, id, vocabulary))}
        />
        {aggregation?.argument && (
          <NumberField
            label={aggregation.argument}
            value={rule.argument}
            unit=""
            onChange={(argument) => change({ argument })}
          />
        )}
        {(aggregation?.needs_window ?? true) && (
          <>
            <span>over</span>
            <SpanField label="Window" value={rule.window} onChange={(window) => change({ window })} />
          </>
        )}
        {aggregation?.takes_baseline && (
          <>
            <span>of run</span>
            <BaselineField value={rule.baseline} onChange={(baseline) => change({ baseline })} />
          </>
        )}
        <span>is</span>
        <InlineSelect
          label="Comparison"
          value={rule.comparison}
          options={COMPARISONS}
          onChange={(id) => change({ comparison: id as Rule["comparison"] })}
        />
        <NumberField
          label="Threshold"
          value={rule.threshold}
          unit={unit}
          onChange={(threshold) => threshold !== null && change({ threshold })}
        />
        <span>for</span>
        <SpanField label="How long before it fires" value={rule.hold} onChange={(hold) => change({ hold })} />
        <span>and clear {isBelow ? "above" : "below"}</span>
        <NumberField
          label="Level at which it is over"
          value={rule.clear}
          unit={unit}
          isOptional
          placeholder="same"
          onChange={(clear) => change({ clear })}
        />
      </div>
      {(metric?.text || aggregation?.text) && (
        <p className="muted">
          {metric?.text} {aggregation?.text && <>Compared is: {lowerFirst(aggregation.text)}</>}
        </p>
      )}
      <Problems problems={problems} of={PLACES.sentence} />
    </section>
  );
}

/** Any run by its name, or the run's own past. */
function BaselineField({ value, onChange }: { value: string; onChange: (run: string) => void }) {
  const { data } = useQuery(runsQuery);
  return (
    <PickField
      label="Baseline run"
      value={value}
      items={[{ id: "", title: "its own past" }, ...named(data?.runs ?? [])]}
      onChange={onChange}
    />
  );
}

function lowerFirst(text: string): string {
  return text.charAt(0).toLowerCase() + text.slice(1);
}

const GROUPS = [
  { id: "run", text: "each run" },
  { id: "layer", text: "each layer" },
  { id: "rank", text: "each rank" },
] as const;

/** Closed it says what is set in it; open by itself only where something is wrong. */
function Fold({
  title,
  says,
  isOpen,
  children,
}: {
  title: string;
  says: string;
  isOpen: boolean;
  children: ReactNode;
}) {
  return (
    <details className="card editor-card editor-fold" open={isOpen || undefined}>
      <summary className="panel-title">
        {title} <span className="fold-says">{says}</span>
      </summary>
      <div className="form">{children}</div>
    </details>
  );
}

function hasProblem(problems: RuleProblem[], fields: readonly string[]): boolean {
  return problems.some(({ where }) => fields.includes(fieldOf(where)));
}

function scopeWords({ scope, group_by }: Rule): string {
  const parts = [
    ...Object.entries(scope)
      .filter(([, names]) => names.length > 0)
      .map(([what, names]) => `${what} ${names.join(", ")}`),
    ...(group_by.join() === "run" ? [] : [`one alert for each ${group_by.join(" and ")}`]),
  ];
  return parts.length > 0 ? parts.join("; ") : "every run";
}

function ScopePart({ rule, change, vocabulary, problems }: PartProps) {
  const { scope } = rule;
  const hasLayers = vocabulary.metrics.find(({ id }) => id === rule.metric)?.per_layer ?? false;
  const set = (changes: Partial<Rule["scope"]>) => change({ scope: { ...scope, ...changes } });
  return (
    <Fold title="Where" says={scopeWords(rule)} isOpen={hasProblem(problems, PLACES.scope)}>
      <div className="form-columns">
        <NamesField
          label="Projects"
          value={scope.projects}
          placeholder="all"
          known={vocabulary.projects}
          onChange={(projects) => set({ projects })}
        />
        <NamesField
          label="Tags"
          value={scope.tags}
          placeholder="any"
          known={vocabulary.tags}
          onChange={(tags) => set({ tags })}
        />
        <NamesField
          label="Runs"
          value={scope.runs}
          placeholder="all"
          hint="Names with * and ?, or ids"
          onChange={(runs) => set({ runs })}
        />
        {hasLayers && (
          <NamesField
            label="Layers"
            value={scope.layers}
            placeholder="all"
            hint="Parameters' names with * and ?"
            onChange={(layers) => set({ layers })}
          />
        )}
        <NamesField
          label="Ranks"
          value={scope.ranks.map(String)}
          placeholder="all"
          onChange={(names) => set({ ranks: names.map(Number).filter(Number.isInteger) })}
        />
      </div>
      <fieldset className="check-row">
        <legend className="muted">One alert for</legend>
        {GROUPS.filter(({ id }) => id !== "layer" || hasLayers).map(({ id, text }) => (
          <label key={id} className="check">
            <input
              type="checkbox"
              checked={rule.group_by.includes(id)}
              onChange={(event) =>
                change({
                  group_by: event.target.checked
                    ? [...rule.group_by, id]
                    : rule.group_by.filter((other) => other !== id),
                })
              }
            />
            {text}
          </label>
        ))}
      </fieldset>
      <Problems problems={problems} of={PLACES.scope} />
    </Fold>
  );
}

const SEVERITIES = [
  { value: "info", text: "Info" },
  { value: "warning", text: "Warning" },
  { value: "critical", text: "Critical" },
] as const;

const MINUTE_S = 60;

function TellingPart({ rule, change, problems, rules }: PartProps & { rules: RuleList }) {
  const { data } = useQuery(channelsQuery);
  const channels = (data?.channels ?? []).map(({ id, name }) => ({ id, text: name }));
  const others = rules.rules.filter((one) => one.rule.id !== rule.id);
  const sentTo =
    rule.channels === null
      ? "all channels that are on"
      : channels
          .filter(({ id }) => rule.channels?.includes(id))
          .map(({ text }) => text)
          .join(", ") || "no channel";
  return (
    <>
      <section className="card editor-card" aria-label="Severity">
        <Choice
          label="Severity"
          value={rule.severity}
          options={SEVERITIES}
          onChange={(severity) => change({ severity })}
        />
      </section>
      <Fold title="How it is told" says={sentTo} isOpen={hasProblem(problems, PLACES.telling)}>
        <div className="telling-row">
          <span>Send to</span>
          {channels.length > 0 ? (
            <CheckMenu
              label="Channels"
              text={sentTo}
              options={channels}
              selected={rule.channels ?? channels.map(({ id }) => id)}
              onChange={(ids) => change({ channels: ids.length === channels.length ? null : ids })}
            />
          ) : (
            <Link to="/alerts/channels">no channel yet</Link>
          )}
        </div>
        <div className="telling-row">
          <span>Remind every</span>
          <NumberField
            label="Reminder, in minutes"
            value={rule.repeat_s === null ? null : rule.repeat_s / MINUTE_S}
            unit=""
            isOptional
            placeholder="never"
            onChange={(minutes) => change({ repeat_s: minutes === null ? null : minutes * MINUTE_S })}
          />
          <span>minutes, until it is acknowledged</span>
        </div>
        <div className="telling-row">
          <span>Resolved after</span>
          <SpanField
            label="How long it must be over"
            value={rule.keep_firing}
            onChange={(span) => change({ keep_firing: span })}
          />
          <span>without</span>
        </div>
        {others.length > 0 && (
          <div className="telling-row">
            <span>Kept quiet by</span>
            <CheckMenu
              label="Rules which keep this one quiet"
              text={rule.inhibited_by.length === 0 ? "no rule" : rule.inhibited_by.join(", ")}
              options={others.map((one) => ({ id: one.rule.id, text: one.rule.name }))}
              selected={rule.inhibited_by}
              onChange={(ids) => change({ inhibited_by: ids })}
            />
            <span>while it fires on the same run</span>
          </div>
        )}
        <Problems problems={problems} of={PLACES.telling} />
      </Fold>
    </>
  );
}

function NamePart({ rule, change, problems, sentence }: PartProps & { sentence: string }) {
  return (
    <>
      <section className="card editor-card" aria-label="Name">
        <label className="field">
          <span>Name</span>
          <input
            value={rule.name}
            maxLength={200}
            placeholder={sentence || "As the sentence"}
            onChange={(event) => change({ name: event.target.value })}
          />
        </label>
      </section>
      <Fold
        title="What it says"
        says={rule.message || "the sentence made from the rule"}
        isOpen={hasProblem(problems, PLACES.name)}
      >
        <label className="field">
          <span>Message</span>
          <textarea
            rows={2}
            value={rule.message}
            maxLength={2000}
            placeholder="Empty: made from the rule"
            onChange={(event) => change({ message: event.target.value })}
          />
          <small className="muted">
            {"{run} {project} {layer} {rank} {metric} {value} {threshold} {step} {first_step} {severity} {url}"}
          </small>
        </label>
        <label className="field">
          <span>Why this threshold</span>
          <textarea
            rows={2}
            value={rule.reason}
            maxLength={2000}
            onChange={(event) => change({ reason: event.target.value })}
          />
        </label>
        <label className="field">
          <span>Runbook</span>
          <input
            type="url"
            value={rule.runbook}
            placeholder="https://…"
            onChange={(event) => change({ runbook: event.target.value })}
          />
        </label>
        <Problems problems={problems} of={PLACES.name} />
      </Fold>
    </>
  );
}
