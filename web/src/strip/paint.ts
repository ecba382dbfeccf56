/** Paints a health strip: the classes that the server sent, in the colours that the server named. Decides nothing itself. */

import type { Strip } from "../api/types";
import { decodeBytes } from "../lib/bytes";

/** A strip with its cells decoded, once per message. */
export interface DecodedStrip {
  strip: Strip;
  cells: Uint8Array;
  heights: Uint8Array;
}

export function decodeStrip(strip: Strip): DecodedStrip {
  return { strip, cells: decodeBytes(strip.cells), heights: decodeBytes(strip.heights) };
}

/** First and last step of a bin; at least one step, also where there are more bins than steps. */
export function binSteps(strip: Strip, bin: number): [number, number] {
  const perBin = (strip.last_step + 1 - strip.first_step) / strip.num_bins;
  const first = strip.first_step + Math.floor(bin * perBin);
  return [first, Math.max(first, strip.first_step + Math.ceil((bin + 1) * perBin) - 1)];
}

/** What hover and arrow keys read out for a bin. */
export function binText({ strip, cells }: DecodedStrip, bin: number): string {
  const text = (strip.texts as Record<string, string>)[bin];
  if (text) return text;
  const [first, last] = binSteps(strip, bin);
  const name = strip.classes.find(({ id }) => id === cells[bin])?.name ?? "";
  const steps =
    first === last
      ? `step ${first.toLocaleString("en-US")}`
      : `steps ${first.toLocaleString("en-US")}-${last.toLocaleString("en-US")}`;
  return `${steps}: ${name}`;
}

export function paintStrip(
  canvas: HTMLCanvasElement,
  { strip, cells, heights }: DecodedStrip,
  color: (role: string) => string,
  ratio: number,
): void {
  paintCells(canvas, { classes: strip.classes, cells, heights }, color, ratio);
}

export interface Cells {
  classes: Strip["classes"];
  /** Class id per bin. */
  cells: Uint8Array;
  /** 0..255 per bin. */
  heights: Uint8Array;
}

/** Fills the canvas, sized in device pixels. Lower ranks first, so that nothing ever covers a graver cell. */
export function paintCells(
  canvas: HTMLCanvasElement,
  { classes, cells, heights }: Cells,
  color: (role: string) => string,
  ratio: number,
): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  const perBin = width / Math.max(1, cells.length);
  for (const { id, role, min_px } of [...classes].sort((a, b) => a.rank - b.rank)) {
    if (role === UNMEASURED) {
      hatch(context, cells, id, perBin, height, color(role), ratio);
      continue;
    }
    context.fillStyle = color(role);
    const leastWidth = Math.round((min_px ?? 1) * ratio);
    for (let bin = 0; bin < cells.length; bin++) {
      if (cells[bin] !== id) continue;
      const painted = Math.max(1, Math.round(((heights[bin] ?? 0) / 255) * height));
      const from = Math.floor(bin * perBin);
      const cellWidth = Math.max(leastWidth, Math.ceil((bin + 1) * perBin) - from);
      context.fillRect(Math.min(from, width - cellWidth), height - painted, cellWidth, painted);
    }
  }
}

/** The role of what was not measured: hatched, so that it is never taken for a value. */
const UNMEASURED = "nodata";
const HATCH_PX = 5;

function hatch(
  context: CanvasRenderingContext2D,
  cells: Uint8Array,
  id: number,
  perBin: number,
  height: number,
  color: string,
  ratio: number,
): void {
  context.strokeStyle = color;
  context.lineWidth = ratio;
  const apart = HATCH_PX * ratio;
  for (let bin = 0; bin < cells.length; bin++) {
    if (cells[bin] !== id) continue;
    const from = Math.floor(bin * perBin);
    while (cells[bin + 1] === id) bin++;
    const to = Math.ceil((bin + 1) * perBin);
    context.save();
    context.beginPath();
    context.rect(from, 0, to - from, height);
    context.clip();
    context.beginPath();
    // Lines lie on one grid for the whole strip: neighbouring gaps do not look like different things.
    for (let x = Math.floor((from - height) / apart) * apart; x < to; x += apart) {
      context.moveTo(x, height);
      context.lineTo(x + height, 0);
    }
    context.stroke();
    context.restore();
  }
}
