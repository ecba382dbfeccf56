/** The x that the pointer is on in one chart, for the thin line in all others. */

import { useSyncExternalStore } from "react";

export interface Crosshair {
  /** The chart under the pointer: it has its own hover and draws no line. */
  source: string;
  /** In the units of Plotly's axis. */
  x: number | string;
}

let current: Crosshair | null = null;
const listeners = new Set<() => void>();

export function setCrosshair(next: Crosshair | null): void {
  if (current === next || (current && next && current.source === next.source && current.x === next.x)) return;
  current = next;
  for (const listener of listeners) listener();
}

export function useCrosshair(): Crosshair | null {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => current,
  );
}
