/** The strip's two lanes read as one: what a place tells, where the next telling place is, and every bad stretch of both. */

import type { Strip, StripRange } from "../api/types";
import { binSteps, binText, type DecodedStrip } from "./paint";

/** A bad stretch with the lane it was seen in: what is asked about it differs. */
export interface LaneRange extends StripRange {
  lane: "steps" | "underflow";
}

const GRAVITY = { info: 0, warning: 1, critical: 2 } as const;

/** The bin of another lane over the same steps; null outside of it. */
function sameBin(from: Strip, bin: number, to: Strip): number | null {
  const [first, last] = binSteps(from, bin);
  const share = ((first + last + 1) / 2 - to.first_step) / (to.last_step + 1 - to.first_step);
  return share >= 0 && share < 1 ? Math.floor(share * to.num_bins) : null;
}

/** "steps 12,000-12,499: 1 skip (probe), underflow 0.8% in block.3": what both lanes say of a bin of the upper one. */
export function lanesText(upper: DecodedStrip, lower: DecodedStrip | null, bin: number): string {
  const text = binText(upper, bin);
  const at = lower ? sameBin(upper.strip, bin, lower.strip) : null;
  const below = at === null ? undefined : (lower?.strip.texts as Record<string, string> | undefined)?.[at];
  return below ? `${text}, ${below.replace(/^steps? [\d,]+(-[\d,]+)?: /, "")}` : text;
}

/** Bins of the upper lane at which either lane has something to tell, in order. */
export function tellingBins(upper: Strip, lower: Strip | null): number[] {
  const own = Object.keys(upper.texts).map(Number);
  const others = Object.keys(lower?.texts ?? {}).map((at) => (lower ? sameBin(lower, Number(at), upper) : null));
  return [...new Set([...own, ...others.filter((at) => at !== null)])].sort((a, b) => a - b);
}

/** Every bad stretch of both lanes by its first step. */
export function laneRanges(upper: Strip, lower: Strip | null | undefined): LaneRange[] {
  const ranges: LaneRange[] = [
    ...upper.ranges.map((range) => ({ ...range, lane: "steps" as const })),
    ...(lower?.ranges ?? []).map((range) => ({ ...range, lane: "underflow" as const })),
  ];
  return ranges.sort((a, b) => a.first_step - b.first_step || a.last_step - b.last_step);
}

/** The gravest bad stretch that touches these steps, of equals the one that begins last: it is the one that fits closest.
 * Where a lane was pointed at, one of that lane goes before all of the other. */
export function rangeAt(ranges: LaneRange[], first: number, last: number, lane?: LaneRange["lane"]): LaneRange | null {
  const weight = (range: LaneRange) => GRAVITY[range.severity] + (range.lane === lane ? 10 : 0);
  let found: LaneRange | null = null;
  for (const range of ranges) {
    if (range.last_step < first || range.first_step > last) continue;
    if (!found || weight(range) >= weight(found)) found = range;
  }
  return found;
}
