/** Stretches in which rules fired, as shapes over the charts they concern. */

import type { AlertBand, Strip } from "../api/types";
import { timeOf } from "../run/view";

type Clock = NonNullable<Strip["clock"]>;

/** A band in the units of a chart's x axis: steps, or milliseconds of the viewer's wall clock. */
export interface ChartBand {
  severity: AlertBand["severity"];
  from: number;
  /** Null: to the end of what is shown. */
  to: number | null;
  /** Whether it is the one that was come for. */
  isMarked: boolean;
  /** A bar along the upper edge, where the ground of the chart already means something. */
  isBar: boolean;
}

export interface XAxis {
  x: "step" | "time";
  utcOffsetMin: number;
  clock: Clock;
}

/** Those that a chart of the run's Overview shows. */
export function ofPanel(bands: readonly AlertBand[], panel: string): AlertBand[] {
  return bands.filter((band) => band.panel !== "" && band.panel === panel);
}

/** Those about a layer, or about one below a module. */
export function ofLayer(bands: readonly AlertBand[], layer: string): AlertBand[] {
  return bands.filter((band) => band.layer !== "" && (band.layer === layer || band.layer.startsWith(`${layer}.`)));
}

/** In the units of a chart's axis; what the clock cannot place is left out. */
export function onAxis(bands: readonly AlertBand[], axis: XAxis, marked: string, isBar = false): ChartBand[] {
  return bands.flatMap(({ alert, severity, first_step, last_step }) => {
    const from = placeOf(first_step, axis);
    const to = last_step === null ? null : placeOf(Math.max(last_step, first_step + 1), axis);
    if (from === null || (last_step !== null && to === null)) return [];
    return [{ severity, from, to, isMarked: alert === marked, isBar }];
  });
}

function placeOf(step: number, { x, utcOffsetMin, clock }: XAxis): number | null {
  if (x === "step") return step;
  const timeUs = timeOf(clock, step);
  return timeUs === null ? null : timeUs / 1000 + utcOffsetMin * 60_000;
}

/** What a band is at least wide, as a share of the axis: one step of a million must be seen. */
const LEAST_SHARE = 0.003;
const MARKED_PX = 1.5;
/** Two of them one over the other can be told from one, and lines stay the darkest. */
const GROUND_OPACITY = 0.6;
const BAR_FROM = 0.985;

/** As Plotly draws them: under the lines, over the whole height.
 *
 * @param range ends of the x axis in its own units.
 */
export function bandShapes(bands: readonly ChartBand[], [first, last]: readonly [number, number]) {
  const least = (last - first) * LEAST_SHARE;
  return bands
    .filter(({ from, to }) => from <= last && (to === null || to >= first))
    .map(({ from, to, severity, isMarked, isBar }) => ({
      type: "rect",
      name: `role:${severity}`,
      layer: isBar ? "above" : "below",
      opacity: isBar ? 1 : GROUND_OPACITY,
      xref: "x",
      yref: "paper",
      // Plotly would widen an axis for what lies outside of it.
      x0: Math.max(first, from),
      x1: Math.min(last, Math.max(to ?? last, from + least)),
      y0: isBar ? BAR_FROM : 0,
      y1: 1,
      ...((isMarked || isBar) && { line: { width: MARKED_PX } }),
    }));
}
