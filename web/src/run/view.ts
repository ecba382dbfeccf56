/** How a run is looked at: the keys of the URL, and what they mean as a window for the server. */

import { useMemo } from "react";
import type { Strip, Window } from "../api/types";
import { setQuery, usePlace } from "../lib/router";
import type { StepRange } from "../strip/ZoomStrip";

export interface View {
  x: "step" | "time";
  y: "auto" | "log" | "linear";
  smooth: number;
  /** In steps, or in microseconds where x is `time`; null is the whole run, following its end. */
  range: [number, number] | null;
  /** A parameter or module; empty: the layer with the worst underflow. */
  layer: string;
  stat: Stat;
  /** Whose histogram is shown; null: the newest. */
  step: number | null;
  /** As FP16 sees it, or as it is; `auto`: seen where the run computes in FP16. */
  gradient: Window["gradient"];
  /** Whose lines the Ranks page shows; null: all ranks. */
  rank: number | null;
}

export type Stat = Window["stat"];
const STATS: readonly Stat[] = ["underflow", "headroom", "nonfinite", "norm", "zeros"];

export const SMOOTHINGS = [
  { value: 0, text: "Off" },
  { value: 0.6, text: "Light" },
  { value: 0.9, text: "Medium" },
  { value: 0.97, text: "Strong" },
];
export const Y_AXES = [
  { value: "auto", text: "Auto" },
  { value: "log", text: "Log" },
  { value: "linear", text: "Linear" },
] as const;

export function parseView(query: URLSearchParams): View {
  const [, from, to] = /^(\d+(?:\.\d+)?)-(\d+(?:\.\d+)?)$/.exec(query.get("r") ?? "") ?? [];
  const range: View["range"] = from && to && Number(from) < Number(to) ? [Number(from), Number(to)] : null;
  const smooth = Number(query.get("s") ?? 0);
  const y = query.get("y");
  const [step] = /^\d{1,15}$/.exec(query.get("step") ?? "") ?? [];
  const [rank] = /^\d{1,9}$/.exec(query.get("rank") ?? "") ?? [];
  const u = query.get("u");
  return {
    x: query.get("x") === "time" ? "time" : "step",
    y: y === "log" || y === "linear" ? y : "auto",
    smooth: smooth > 0 && smooth < 1 ? smooth : 0,
    range,
    layer: (query.get("layer") ?? "").slice(0, MOST_NAME_CHARS),
    stat: STATS.find((stat) => stat === query.get("stat")) ?? "underflow",
    step: step === undefined ? null : Number(step),
    gradient: u === "seen" || u === "true" ? u : "auto",
    rank: rank === undefined ? null : Number(rank),
  };
}

/** What the server takes as a name. */
const MOST_NAME_CHARS = 512;

export function useView(): View {
  const { query } = usePlace();
  const text = query.toString();
  return useMemo(() => parseView(new URLSearchParams(text)), [text]);
}

/** All steps, or microseconds, that a stretch touches. Zooming makes an entry for Back; a change of style does not. */
export function setRange(range: View["range"]): void {
  const first = Math.floor(range?.[0] ?? 0);
  setQuery({ r: range && `${first}-${Math.max(first + 1, Math.ceil(range[1]))}` }, { push: true });
}

export function setY(y: View["y"]): void {
  setQuery({ y: y === "auto" ? null : y });
}

export function setSmooth(smooth: number): void {
  setQuery({ s: smooth > 0 ? String(smooth) : null });
}

/** What the charts of every step are asked for with: which layer is looked at is nothing to them. */
export function toWindow(view: View, widthPx: number): Window {
  return {
    x: view.x,
    first: view.range?.[0] ?? null,
    last: view.range?.[1] ?? null,
    y: view.y,
    smooth: view.smooth,
    width_px: widthPx,
    utc_offset_min: -new Date().getTimezoneOffset(),
    layer: "",
    stat: "underflow",
    step: null,
    gradient: "auto",
    rows: [],
    rank: null,
  };
}

/** The same stretch with which layer, step and statistic the page is on. */
export function toLayersWindow(window: Window, view: View, rows: string[]): Window {
  return { ...window, layer: view.layer, stat: view.stat, step: view.step, gradient: view.gradient, rows };
}

type Clock = NonNullable<Strip["clock"]>;

/** A value of one column of the clock at a value of the other, by straight lines between its knots. */
function convert(clock: Clock, value: number, from: "step" | "time"): number | null {
  const knots = clock.map(([step = 0, time = 0]) =>
    from === "step" ? { at: step, to: time } : { at: time, to: step },
  );
  let before = knots[0];
  if (!before) return null;
  for (const knot of knots) {
    if (value <= knot.at) {
      const span = knot.at - before.at;
      return span > 0 ? before.to + (Math.max(0, value - before.at) / span) * (knot.to - before.to) : knot.to;
    }
    before = knot;
  }
  return before.to;
}

/** The time of a step, in microseconds. Null where it cannot be told. */
export function timeOf(clock: Clock, step: number): number | null {
  return convert(clock, step, "step");
}

/** The range of the URL in steps, for the strip. Null where it cannot be told. */
export function toSteps(view: Pick<View, "x" | "range">, clock: Clock): StepRange | null {
  if (!view.range || view.x === "step") return view.range;
  const [from, to] = view.range.map((time) => convert(clock, time, "time"));
  return from == null || to == null ? null : [Math.round(from), Math.max(Math.round(from) + 1, Math.round(to))];
}

/** Steps as a range for the URL, in the units of its x axis. */
export function fromSteps(x: View["x"], range: StepRange | null, clock: Clock): View["range"] {
  if (!range || x === "step") return range;
  const [from, to] = range.map((step) => convert(clock, step, "step"));
  return from == null || to == null || to <= from ? null : [from, to];
}

/** The step at a place of the x axis. Null where it cannot be told. */
export function stepAt(x: View["x"], place: number, clock: Clock): number | null {
  const step = x === "step" ? place : convert(clock, place, "time");
  return step === null ? null : Math.max(0, Math.round(step));
}

/** Changes the x axis and keeps the stretch that is looked at. */
export function setX(view: View, x: View["x"], clock: Clock): void {
  if (x === view.x) return;
  const range = fromSteps(x, toSteps(view, clock), clock);
  setQuery({ x: x === "time" ? "time" : null, r: range && `${Math.round(range[0])}-${Math.round(range[1])}` });
}
