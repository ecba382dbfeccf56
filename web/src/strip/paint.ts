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

/** Fills the canvas, sized in device pixels. Lower ranks first, so that nothing ever covers a graver cell. */
export function paintStrip(
  canvas: HTMLCanvasElement,
  decoded: DecodedStrip,
  color: (role: string) => string,
  ratio: number,
): void {
  const context = canvas.getContext("2d");
  if (!context) return;
  const { strip, cells, heights } = decoded;
  const { width, height } = canvas;
  context.clearRect(0, 0, width, height);
  const perBin = width / strip.num_bins;
  for (const { id, role, min_px } of [...strip.classes].sort((a, b) => a.rank - b.rank)) {
    context.fillStyle = color(role);
    const leastWidth = Math.round((min_px ?? 1) * ratio);
    for (let bin = 0; bin < strip.num_bins; bin++) {
      if (cells[bin] !== id) continue;
      const painted = Math.max(1, Math.round(((heights[bin] ?? 0) / 255) * height));
      const from = Math.floor(bin * perBin);
      const cellWidth = Math.max(leastWidth, Math.ceil((bin + 1) * perBin) - from);
      context.fillRect(Math.min(from, width - cellWidth), height - painted, cellWidth, painted);
    }
  }
}
