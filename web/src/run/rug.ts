/** Where the marks of the rug stand, in pixels on the strip's own scale. */

import type { RugMark, Strip } from "../api/types";

export interface Place {
  x: number;
  mark: string;
  role: string;
  severity: RugMark["severity"];
  count: number;
  text: string;
}

/** Bars are 3 px wide: what is closer would be one. The server merges by a grid, so two of its marks can still meet. */
const APART_PX = 4;
const GRAVITY = { info: 0, warning: 1, critical: 2 } as const;

/** Marks by place, none closer than `APART_PX` to the one before; the counts add up to those given.
 *
 * What happened before the first step, or after the last, stands at the edge.
 */
export function placeMarks(marks: RugMark[], strip: Pick<Strip, "first_step" | "last_step">, widthPx: number): Place[] {
  const span = Math.max(1, strip.last_step - strip.first_step);
  const places: Place[] = [];
  for (const { first_step, last_step, mark, role, severity, count, text } of marks) {
    const share = ((first_step + last_step) / 2 - strip.first_step) / span;
    const x = Math.min(1, Math.max(0, share)) * widthPx;
    const before = places.at(-1);
    if (!before || x - before.x >= APART_PX) {
      places.push({ x, mark, role, severity, count, text });
      continue;
    }
    before.count += count;
    before.text = `${before.text}\n${text}`;
    if (GRAVITY[severity] > GRAVITY[before.severity]) Object.assign(before, { mark, role, severity });
  }
  return places;
}
