/** The steps that a chart has a column for, so that keys go from one measured step to the next. */

import type { PanelFigure } from "../api/types";
import { unpack } from "../chart/arrays";
import { axisValue, mergeOver } from "../chart/figure";

type Trace = Record<string, unknown>;

/** Places of the columns of a figure's widest heatmap, in the units of the window's x axis, ascending. */
export function columnPlaces(figure: PanelFigure | undefined, x: "step" | "time", utcOffsetMin: number): number[] {
  const traces = Array.isArray(figure?.skeleton.data) ? (figure.skeleton.data as Trace[]) : [];
  let widest: number[] = [];
  traces.forEach((trace, at) => {
    const whole = mergeOver(trace, figure?.fill.data[at] ?? {});
    if (whole.type !== "heatmap") return;
    const places = unpack(whole.x)
      .map((value) => axisValue(value, x, utcOffsetMin))
      .filter((value) => value !== null);
    // The edges of columns are one more than there are: a column begins at its first step.
    if (places.length > numColumns(whole.z)) places.pop();
    if (places.length > widest.length) widest = places;
  });
  return widest;
}

/** Of a grid as lists of rows, or packed with its shape. */
function numColumns(grid: unknown): number {
  if (Array.isArray(grid)) return Array.isArray(grid[0]) ? grid[0].length : 0;
  const shape = (grid as { shape?: string } | undefined)?.shape;
  return shape ? Number(shape.split(",")[1]) : 0;
}

/** The place before or after the one nearest to `from`; the last one where there is no place to come from. */
export function neighbour(places: number[], from: number | null, direction: 1 | -1): number | null {
  if (places.length === 0) return null;
  if (from === null) return places.at(direction > 0 ? -1 : -2) ?? places[0] ?? null;
  let nearest = 0;
  places.forEach((place, at) => {
    if (Math.abs(place - from) < Math.abs((places[nearest] ?? 0) - from)) nearest = at;
  });
  return places[Math.min(places.length - 1, Math.max(0, nearest + direction))] ?? null;
}
