/** Typed samples for unit tests: small, complete values of the API's shapes. Nothing outside of tests may import this. */

import type { EventItem, LayerNode, PanelFigure, RunSummary, Strip } from "../api/types";

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
