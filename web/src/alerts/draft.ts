/** A rule while it is edited: what a new one begins with, and how its fields follow from one another. */

import type { Preset, Rule, RuleVocabulary, Span } from "../api/types";

/** As the server fills them in. */
const EMPTY: Rule = {
  id: "",
  name: "",
  enabled: true,
  metric: "nonfinite_rate.caught_unexpected",
  aggregation: "mean",
  argument: null,
  window: { steps: 200 },
  comparison: ">",
  threshold: 0.01,
  clear: null,
  hold: {},
  keep_firing: {},
  severity: "warning",
  scope: { projects: [], tags: [], runs: [], layers: [], ranks: [] },
  group_by: ["run"],
  baseline: "",
  inhibited_by: [],
  repeat_s: null,
  channels: null,
  message: "",
  runbook: "",
  reason: "",
  preset: "",
};

/** A rule with every key, from one in which what has a default may be missing. */
export function fullRule(rule: Preset["rule"]): Rule {
  return { ...EMPTY, ...rule, scope: { ...EMPTY.scope, ...rule.scope } };
}

export function newRule(): Rule {
  return structuredClone(EMPTY);
}

/** An id for a name: small letters, digits and dashes, unlike any that is taken. */
export function idFor(name: string, taken: ReadonlySet<string>): string {
  const base =
    name
      .toLowerCase()
      .normalize("NFKD")
      .replace(/[^a-z0-9]+/g, "-")
      .replace(/^-+|-+$/g, "")
      .slice(0, 56) || "rule";
  for (let at = 1; ; at++) {
    const id = at === 1 ? base : `${base}-${at}`;
    if (!taken.has(id)) return id;
  }
}

export function isNone(span: Span | undefined): boolean {
  return !span?.steps && !span?.seconds;
}

/** Another metric: what does not go with it gives way to what does. */
export function withMetric(rule: Rule, metric: string, vocabulary: RuleVocabulary): Rule {
  const chosen = vocabulary.metrics.find(({ id }) => id === metric);
  const fitting = chosen?.aggregations ?? [];
  const aggregation = fitting.length === 0 || fitting.includes(rule.aggregation) ? rule.aggregation : fitting[0];
  const groups = chosen?.per_layer ? rule.group_by : rule.group_by.filter((key) => key !== "layer");
  const changed = { ...rule, metric, group_by: groups.length > 0 ? groups : (["run"] satisfies Rule["group_by"]) };
  return withAggregation(changed, aggregation ?? "last", vocabulary);
}

/** Another aggregation, with the window and argument that it needs and no others. */
export function withAggregation(rule: Rule, aggregation: string, vocabulary: RuleVocabulary): Rule {
  const chosen = vocabulary.aggregations.find(({ id }) => id === aggregation);
  return {
    ...rule,
    aggregation,
    argument: chosen?.argument ? (rule.argument ?? chosen.default_argument) : null,
    window: chosen?.needs_window && isNone(rule.window) ? { steps: 200 } : rule.window,
  };
}

/** Names as they are typed into one field. */
export function splitNames(text: string): string[] {
  return [...new Set(text.split(/[,\n]/).map((name) => name.trim()))].filter(Boolean);
}

/** Runs as they are chosen by name: of those that share one, the beginning of the id tells which. */
export function named(runs: readonly { id: string; name: string }[]): { id: string; title: string }[] {
  const counts = new Map<string, number>();
  for (const { name } of runs) counts.set(name, (counts.get(name) ?? 0) + 1);
  return runs.map(({ id, name }) => ({ id, title: counts.get(name) === 1 ? name : `${name} (${id.slice(0, 8)})` }));
}
