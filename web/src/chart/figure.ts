/** A panel's skeleton and fill as one Plotly figure in the theme's colours.
 *
 * Figures come from the server and name roles; here roles become colours. Knows no panel, metric or series. The server
 * paints files itself, in the same way: both are held to `painting.json`.
 */

import { bandShapes, type ChartBand } from "../alerts/bands";
import type { PanelFigure } from "../api/types";
import type { Palette } from "../lib/theme";

type Json = Record<string, unknown>;

export interface Figure {
  data: Json[];
  layout: Json;
}

function isObject(value: unknown): value is Json {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** `over` laid over `under`. Arrays, also those as base64 with their dtype, are replaced whole. */
export function mergeOver(under: Json, over: Json): Json {
  const merged: Json = { ...under };
  for (const [key, value] of Object.entries(over)) {
    const old = merged[key];
    merged[key] = isObject(value) && isObject(old) && !("bdata" in value) ? mergeOver(old, value) : value;
  }
  return merged;
}

/** #RRGGBB with an opacity. */
export function fade(color: string, opacity: number): string {
  const [, red, green, blue] = /^#(..)(..)(..)$/.exec(color) ?? [];
  if (!red || !green || !blue) return color;
  return `rgba(${Number.parseInt(red, 16)},${Number.parseInt(green, 16)},${Number.parseInt(blue, 16)},${opacity})`;
}

/** How much of its colour an area keeps, where the server does not say. */
const AREA_OPACITY = 0.16;

function paintTrace(trace: Json, palette: Palette): Json {
  const meta = isObject(trace.meta) ? trace.meta : {};
  if (typeof meta.role !== "string") return trace;
  const color = palette.color(meta.role);
  const line = isObject(trace.line) ? trace.line : {};
  const marker = isObject(trace.marker) ? trace.marker : {};
  const painted: Json = { ...trace, line: { color, ...line }, marker: { color, ...marker } };
  if (trace.type === "bar" || trace.type === "histogram" || trace.type === "heatmap") delete painted.line;
  if (trace.type === "heatmap") delete painted.marker;
  if (trace.fill && trace.fill !== "none") painted.fillcolor ??= fade(color, AREA_OPACITY);
  if (typeof trace.mode === "string" && trace.mode.includes("text")) {
    painted.textfont = { color, ...(isObject(trace.textfont) ? trace.textfont : {}) };
  }
  return painted;
}

/** The role in a name like `role:muted`, as shapes and annotations carry it. */
function roleOf(item: Json): string | null {
  return typeof item.name === "string" && item.name.startsWith("role:") ? item.name.slice("role:".length) : null;
}

function paintShape(shape: Json, palette: Palette): Json {
  const role = roleOf(shape);
  if (role === null) return shape;
  const color = palette.color(role);
  const line = isObject(shape.line) ? shape.line : {};
  // A rectangle is a shaded zone; anything else is its line.
  return shape.type === "rect"
    ? { ...shape, fillcolor: fade(color, AREA_OPACITY), line: { width: 0, color, ...line } }
    : { ...shape, line: { color, ...line } };
}

/** How much of the card shows through behind a word that stands on a chart. */
const BEHIND_WORDS_OPACITY = 0.82;

function paintAnnotation(annotation: Json, palette: Palette): Json {
  const role = roleOf(annotation);
  if (role === null) return annotation;
  // Words lie above lines and cells of any colour: they bring their own ground.
  const bgcolor = fade(palette.color("panel"), BEHIND_WORDS_OPACITY);
  const font = { color: palette.color(role), ...(isObject(annotation.font) ? annotation.font : {}) };
  return { bgcolor, borderpad: 1, ...annotation, font };
}

/** What every chart looks like, whatever it shows. */
function house(palette: Palette): Json {
  const text = palette.color("text");
  const muted = palette.color("muted");
  const line = palette.color("line");
  return {
    autosize: true,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, sans-serif", size: 12, color: muted },
    // The least: axes push further out what their labels need.
    margin: { l: 40, r: 14, t: 8, b: 28 },
    hoverlabel: {
      bgcolor: palette.color("panel"),
      bordercolor: line,
      font: { family: "system-ui, sans-serif", size: 12, color: text },
    },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { color: muted } },
    modebar: { orientation: "h" },
  };
}

/** Decades up to which a log axis also names 2 and 5. */
const FINE_DECADES = 2.5;
const MOST_DECADE_TICKS = 6;

function paintAxis(axis: Json, palette: Palette): Json {
  const line = palette.color("line");
  const look: Json = {
    gridcolor: line,
    linecolor: line,
    zerolinecolor: line,
    tickcolor: line,
    automargin: true,
    separatethousands: true,
    title: { standoff: 8 },
  };
  const range = axis.range;
  if (axis.type === "log" && Array.isArray(range)) {
    const decades = Math.abs(Number(range[1]) - Number(range[0]));
    look.tickformat = "~g";
    look.dtick = decades <= FINE_DECADES ? "D2" : Math.ceil(decades / MOST_DECADE_TICKS);
  }
  return mergeOver(look, axis);
}

export interface Interaction {
  /** Changes when the window does: then the axes follow the server, not what was dragged before. */
  windowKey: string;
  /** Dragging zooms; off where a finger scrolls. */
  canDrag: boolean;
  /** Stretches in which alerts fired, laid under the lines. */
  bands?: readonly ChartBand[];
}

export function buildFigure(
  { skeleton, fill }: PanelFigure,
  palette: Palette,
  { windowKey, canDrag, bands = [] }: Interaction,
): Figure {
  const traces = Array.isArray(skeleton.data) ? (skeleton.data as Json[]) : [];
  const data = traces.map((trace, at) => paintTrace(mergeOver(trace, fill.data[at] ?? {}), palette));
  const served = mergeOver(isObject(skeleton.layout) ? skeleton.layout : {}, fill.layout);
  const layout = mergeOver(house(palette), served);
  // plotly.py writes its template into every figure; the house look replaces it.
  delete layout.template;
  layout.uirevision = fill.skeleton_id;
  layout.dragmode = canDrag ? "zoom" : false;
  const axes = new Set(["xaxis", "yaxis", ...Object.keys(layout).filter((key) => /^[xy]axis\d*$/.test(key))]);
  for (const name of axes) {
    const axis = paintAxis(isObject(layout[name]) ? (layout[name] as Json) : {}, palette);
    // The page has one zoom, along x; a chart's own vertical zoom would be forgotten by the next window.
    layout[name] = name.startsWith("x") ? { ...axis, uirevision: windowKey } : { ...axis, fixedrange: true };
  }
  const shapes = [...(Array.isArray(layout.shapes) ? (layout.shapes as Json[]) : []), ...shapesOf(bands, layout.xaxis)];
  if (shapes.length > 0) layout.shapes = shapes.map((shape) => paintShape(shape, palette));
  if (Array.isArray(layout.annotations)) {
    layout.annotations = (layout.annotations as Json[]).map((annotation) => paintAnnotation(annotation, palette));
  }
  return { data, layout };
}

function shapesOf(bands: readonly ChartBand[], axis: unknown): Json[] {
  const range = isObject(axis) && Array.isArray(axis.range) ? axis.range.map(Number) : [];
  const [first, last] = range;
  return first === undefined || last === undefined || !(last > first) ? [] : bandShapes(bands, [first, last]);
}

/** What Plotly reports as an end of its x axis, in the units of the URL: steps, or microseconds.
 *
 * Plotly keeps dates as text or milliseconds that mean the viewer's wall clock; `utcOffsetMin` takes it back to UTC.
 */
export function axisValue(value: unknown, x: "step" | "time", utcOffsetMin: number): number | null {
  if (x === "step") return typeof value === "number" && Number.isFinite(value) ? Math.max(0, value) : null;
  const wallMs = typeof value === "number" ? value : Date.parse(`${String(value).replace(" ", "T")}Z`);
  return Number.isFinite(wallMs) ? (wallMs - utcOffsetMin * 60_000) * 1000 : null;
}
