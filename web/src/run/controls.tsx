/** How the pages of a run are looked at: the bar above the charts, and the keys that do the same. */

import type { Strip } from "../api/types";
import { useKeys } from "../lib/keys";
import type { LaneRange } from "../strip/lanes";
import { around } from "../strip/ZoomStrip";
import { Choice } from "../ui/choice";
import { SMOOTHINGS, setRange, setSmooth, setX, setY, type View, Y_AXES } from "./view";

const X_AXES = [
  { value: "step", text: "Step" },
  { value: "time", text: "Time" },
] as const;

interface ViewProps {
  view: View;
  strip: Strip | null;
}

export function XAxisChoice({ view, strip }: ViewProps) {
  return (
    <Choice
      label="Horizontal axis"
      value={view.x}
      options={X_AXES}
      onChange={(x) => setX(view, x, strip?.clock ?? [])}
    />
  );
}

export function WholeRunButton({ view }: { view: View }) {
  if (!view.range) return null;
  return (
    <button type="button" className="button" onClick={() => setRange(null)}>
      Show whole run
    </button>
  );
}

export function ViewControls({ view, strip }: ViewProps) {
  return (
    <div className="view-controls">
      <XAxisChoice view={view} strip={strip} />
      <Choice label="Vertical axis" value={view.y} options={Y_AXES} onChange={setY} />
      <Choice label="Smoothing" value={view.smooth} options={SMOOTHINGS} onChange={setSmooth} />
      <WholeRunButton view={view} />
    </div>
  );
}

interface StretchKeys extends ViewProps {
  /** The zoom in steps. */
  steps: [number, number] | null;
  ranges: LaneRange[];
  zoom: (range: [number, number] | null) => void;
  /** Told the bad stretch that [ or ] led to. */
  onBad?: (range: LaneRange) => void;
}

/** Zoom, axis and bad stretches from the keyboard. */
export function useStretchKeys({ view, strip, steps, ranges, zoom, onBad }: StretchKeys) {
  const goToBad = (direction: 1 | -1) => {
    if (!strip) return;
    const next = nextBad(strip, ranges, steps, direction);
    if (!next) return;
    zoom(around(strip, next.first_step, next.last_step));
    onBad?.(next);
  };
  useKeys({
    "[": () => goToBad(-1),
    "]": () => goToBad(1),
    "0": () => zoom(null),
    t: () => setX(view, view.x === "step" ? "time" : "step", strip?.clock ?? []),
  });
}

/** Vertical axis and smoothing, where there are lines. */
export function useLineKeys(view: View) {
  const smoothAt = SMOOTHINGS.findIndex(({ value }) => value === view.smooth);
  const yAt = Y_AXES.findIndex(({ value }) => value === view.y);
  useKeys({
    y: () => setY(Y_AXES[(yAt + 1) % Y_AXES.length]?.value ?? "auto"),
    s: () => setSmooth(SMOOTHINGS[(smoothAt + 1) % SMOOTHINGS.length]?.value ?? 0),
  });
}

/** The bad stretch after, or before, the one that is looked at; else the one next to the middle of what is. */
export function nextBad(
  strip: Strip,
  ranges: LaneRange[],
  steps: [number, number] | null,
  direction: 1 | -1,
): LaneRange | null {
  const here = ranges.findIndex(({ first_step, last_step }) => {
    const [first, last] = around(strip, first_step, last_step);
    return steps !== null && first === steps[0] && last === steps[1];
  });
  if (here >= 0) return ranges[here + direction] ?? null;
  const middle = steps ? (steps[0] + steps[1]) / 2 : direction > 0 ? -1 : Number.POSITIVE_INFINITY;
  const found = ranges.filter(({ first_step, last_step }) =>
    direction > 0 ? first_step > middle : last_step < middle,
  );
  return (direction > 0 ? found[0] : found.at(-1)) ?? null;
}
