/** The order in which charts are drawn: one after the other, with frames in between.
 *
 * A message brings pictures for all charts in sight. Drawn at once they would keep the page still, and the first of them from
 * being seen, for as long as all of them take. Knows nothing of Plotly. Invariant: of a chart at most one picture waits, the
 * newest, in the place of the one that it replaces.
 */

/** Of one frame that charts may take before the next are left to the next frame. */
const FRAME_SHARE_MS = 8;

const waiting = new Map<object, () => void>();
let isScheduled = false;

/** Draws soon; instead of what waits for the same chart. */
export function drawSoon(chart: object, draw: () => void): void {
  waiting.set(chart, draw);
  schedule();
}

/** Draws no more. */
export function forget(chart: object): void {
  waiting.delete(chart);
}

function schedule(): void {
  if (isScheduled || waiting.size === 0) return;
  isScheduled = true;
  requestAnimationFrame(drawSome);
}

function drawSome(): void {
  isScheduled = false;
  const endMs = performance.now() + FRAME_SHARE_MS;
  try {
    for (const [chart, draw] of waiting) {
      waiting.delete(chart);
      draw();
      if (performance.now() >= endMs) break;
    }
  } finally {
    schedule();
  }
}
