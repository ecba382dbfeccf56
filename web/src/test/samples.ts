/** Typed samples for unit tests: small, complete values of the API's shapes. Nothing outside of tests may import this. */

import type { CompareReport, EventItem, LayerNode, PanelFigure, RunSummary, Strip } from "../api/types";

export function bytes(...values: number[]): string {
  return btoa(String.fromCharCode(...values));
}

export function makeStrip(changes: Partial<Strip> = {}): Strip {
  return {
    lane: "steps",
    first_step: 0,
    last_step: 99,
    num_bins: 10,
    classes: [
      { id: 0, name: "clean", role: "calm", rank: 0, min_px: 1 },
      { id: 1, name: "tick", role: "small", rank: 1, min_px: 1 },
      { id: 2, name: "grave", role: "grave", rank: 2, min_px: 2 },
    ],
    cells: bytes(0, 0, 1, 0, 0, 2, 0, 0, 0, 0),
    heights: bytes(40, 40, 90, 40, 40, 255, 40, 40, 40, 40),
    texts: { 2: "steps 20-29: 1 tick", 5: "steps 50-59: something grave" },
    ranges: [{ first_step: 52, last_step: 55, text: "steps 52-55: something grave", severity: "critical" }],
    summary: "100 steps, 1 tick",
    clock: [],
    ...changes,
  };
}

export function makeRun(changes: Partial<RunSummary> = {}): RunSummary {
  return {
    id: "run1",
    name: "digits",
    project: "demo",
    tags: [],
    state: "live",
    state_text: "Live",
    health: { word: "healthy", severity: "ok", reasons: [] },
    precision: "FP16-AMP",
    precision_role: "fp16",
    device: "cpu",
    demo: false,
    first_step: 0,
    last_step: 99,
    steps_per_s: 10,
    loss: 0.5,
    scale: 65536,
    skips: { total: 0, settling: 0, probe: 0, streak: 0, single: 0, share: 0, longest_streak: 0 },
    memory_bytes: null,
    created_us: 1_700_000_000_000_000,
    updated_us: 1_700_000_100_000_000,
    ended_us: null,
    attempts: 1,
    world_size: 1,
    sentence: [],
    strip: makeStrip(),
    ...changes,
  };
}

export function makeFigure(changes: Partial<PanelFigure> = {}): PanelFigure {
  return {
    info: {
      id: "one",
      title: "One",
      section: "overview",
      columns: 4,
      height_px: 200,
      order: 1,
      folded_on_phone: false,
    },
    skeleton: { data: [{ type: "scatter", mode: "lines", meta: { role: "warm" }, line: { width: 2 } }], layout: {} },
    fill: {
      run: "run1",
      panel: "one",
      skeleton_id: "k1",
      data: [{ x: { dtype: "i4", bdata: "AAAA" } }],
      layout: {},
      label: "One, run digits",
      headline: "",
      empty: "",
      first_step: 0,
      last_step: 99,
    },
    ...changes,
  };
}

/** Nodes in preorder from full names: what ends in a dot is a module. */
export function makeNodes(...names: string[]): LayerNode[] {
  return names.map((text) => {
    const kind = text.endsWith(".") ? "module" : "parameter";
    const name = kind === "module" ? text.slice(0, -1) : text;
    const parts = name.split(".");
    const depth = parts.length - 1;
    return {
      name,
      label: parts.at(-1) ?? "",
      depth,
      kind,
      elements: 100,
      shape: kind === "parameter" ? [10, 10] : [],
      worst: "0",
      worst_step: null,
      severity: "ok",
      spark: "",
      spark_heights: "",
      note: "",
      open: kind === "module" && depth < 1,
    };
  });
}

export function makeEvent(changes: Partial<EventItem> = {}): EventItem {
  return {
    id: "e1",
    kind: "skip",
    title: "Skipped step",
    text: "",
    severity: "info",
    role: "quiet",
    mark: "▾",
    step: 5,
    time_us: 1_700_000_000_000_000,
    rank: 0,
    attempt: 0,
    where: [],
    details: {},
    ...changes,
  };
}

/** Two runs, of which the second ends 20% higher. */
export function makeReport(changes: Partial<CompareReport> = {}): CompareReport {
  const runs = ["a", "b"] as const;
  return {
    key: "a,b",
    options: { metric: "loss", align: "attempts", tolerance_share: 0.005 },
    members: runs.map((run, at) => ({
      run,
      name: `run ${run}`,
      project: "demo",
      letter: run.toUpperCase(),
      precision: at === 0 ? "FP32" : "FP16-AMP",
      precision_role: at === 0 ? "fp32" : "fp16",
      state: "finished",
      last_step: 99,
      group: at,
      config: {},
    })),
    metrics: ["loss"],
    sentence: "B is worse",
    outcome: "worse",
    is_live: false,
    fairness: {
      items: [
        {
          id: "seed",
          title: "Seed",
          state: "different",
          values: ["0", "1"],
          states: ["same", "different"],
          confounds: ["quality"],
          text: "other seeds",
          is_intended: false,
        },
      ],
      num_same: 0,
      num_different: 1,
      num_unknown: 0,
    },
    quality: runs.map((run, at) => ({
      run,
      metric: "loss",
      outcome: at === 0 ? "equal" : "worse",
      lower_is_better: true,
      final: { value: at === 0 ? 0.5 : 0.6, low: null, high: null, count: 20 },
      final_words: "",
      difference: at === 0 ? null : { value: 0.2, low: null, high: null, count: 20 },
      first_x: at === 0 ? null : 40,
      first_step: at === 0 ? null : 40,
      noise: "tolerance",
      noise_share: 0.005,
      oscillation: null,
      reason: "",
    })),
    cost: runs.map((run, at) => ({
      run,
      throughput: { value: 1000 * (at + 1), low: 990, high: 2010, count: 90 },
      throughput_unit: "samples/s",
      speedup: at === 0 ? null : { value: 2, low: 1.9, high: 2.1, count: 90 },
      step_s: null,
      step_spread: null,
      warmup_steps: 0,
      time_to_baseline_s: null,
      baseline_time_s: null,
      peak_memory_bytes: null,
      memory_of: "process",
      parameter_bytes: null,
      gradient_bytes: null,
      optimizer_state_bytes: null,
      memory_ratio: null,
      confounded_by: [],
      because: [],
    })),
    stability: runs.map((run) => ({
      run,
      num_steps: 100,
      skips: {},
      nonfinite_caught: 0,
      nonfinite_applied: 0,
      longest_streak: 0,
      scale_min: null,
      scale_max: null,
      scale_last: null,
    })),
    numerics: runs.map((run) => ({
      run,
      layers: [],
      num_common: 0,
      only_baseline: [],
      only_member: [],
      num_frames: 0,
      interval: null,
      first_step: null,
      first_layer: "",
      reason: "no step of both was sketched",
    })),
    verdicts: [],
    ...changes,
  };
}
