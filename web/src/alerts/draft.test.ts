import { describe, expect, it } from "vitest";
import type { RuleVocabulary } from "../api/types";
import { fullRule, idFor, named, newRule, splitNames, withAggregation, withMetric } from "./draft";

const vocabulary: RuleVocabulary = {
  metrics: [
    { id: "loss", title: "Loss", unit: "", text: "", derived: false, per_layer: false, aggregations: [] },
    {
      id: "underflow_share",
      title: "Underflow",
      unit: "share",
      text: "",
      derived: true,
      per_layer: true,
      aggregations: ["last", "mean"],
    },
    { id: "stall", title: "Stall", unit: "", text: "", derived: true, per_layer: false, aggregations: ["last"] },
  ],
  aggregations: [
    {
      id: "last",
      title: "last",
      text: "",
      needs_window: false,
      argument: "",
      default_argument: null,
      takes_baseline: false,
      unit: "same",
    },
    {
      id: "mean",
      title: "mean",
      text: "",
      needs_window: true,
      argument: "",
      default_argument: null,
      takes_baseline: false,
      unit: "same",
    },
    {
      id: "quantile",
      title: "quantile",
      text: "",
      needs_window: true,
      argument: "quantile",
      default_argument: 0.95,
      takes_baseline: false,
      unit: "same",
    },
  ],
  projects: [],
  tags: [],
};

describe("ids of rules", () => {
  it("are made of the name and unlike any that is taken", () => {
    expect(idFor("NaN/Inf applied > 0", new Set())).toBe("nan-inf-applied-0");
    expect(idFor("Loss", new Set(["loss", "loss-2"]))).toBe("loss-3");
    expect(idFor("损失", new Set())).toBe("rule");
    expect(idFor("x".repeat(500), new Set())).toMatch(/^[a-z0-9][a-z0-9._-]{0,63}$/);
  });
});

describe("fields that follow from one another", () => {
  it("keep an aggregation that goes with the metric and change one that does not", () => {
    const mean = { ...newRule(), aggregation: "mean" };
    expect(withMetric(mean, "loss", vocabulary).aggregation).toBe("mean");
    expect(withMetric(mean, "stall", vocabulary).aggregation).toBe("last");
  });

  it("group by layer only what has layers", () => {
    const layered = { ...newRule(), group_by: ["layer" as const] };
    expect(withMetric(layered, "underflow_share", vocabulary).group_by).toEqual(["layer"]);
    expect(withMetric(layered, "loss", vocabulary).group_by).toEqual(["run"]);
  });

  it("give a quantile its argument and take it away again", () => {
    const quantile = withAggregation(newRule(), "quantile", vocabulary);
    expect(quantile.argument).toBe(0.95);
    expect(withAggregation(quantile, "mean", vocabulary).argument).toBeNull();
    expect(withAggregation({ ...newRule(), window: {} }, "mean", vocabulary).window).toEqual({ steps: 200 });
  });
});

describe("rules from the server", () => {
  it("have every key", () => {
    const rule = fullRule({ id: "a", name: "A", metric: "loss", threshold: 3, scope: { layers: ["fc*"] } });
    expect(rule.scope).toEqual({ projects: [], tags: [], runs: [], layers: ["fc*"], ranks: [] });
    expect(rule.severity).toBe("warning");
  });
});

it("splits names at commas and lines", () => {
  expect(splitNames(" a, b,,\n a\nc ")).toEqual(["a", "b", "c"]);
});

describe("runs to compare with", () => {
  it("are told apart by their ids where they share a name", () => {
    const runs = [
      { id: "0123456789", name: "fp16" },
      { id: "abcdefghij", name: "fp16" },
      { id: "9876543210", name: "fp32" },
    ];
    expect(named(runs).map(({ title }) => title)).toEqual(["fp16 (01234567)", "fp16 (abcdefgh)", "fp32"]);
  });
});
