/** Alerts that changed, as live messages bring them, to whoever wants to tell of them. */

import type { AlertItem } from "../api/types";

type Listener = (changed: AlertItem[]) => void;

const listeners = new Set<Listener>();

export function tellNews(changed: AlertItem[]): void {
  for (const listener of listeners) listener(changed);
}

export function onNews(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Those of them that have begun to fire and that nobody was kept from being told of. */
export function newlyFiring(changed: AlertItem[], known: ReadonlySet<string>): AlertItem[] {
  return changed.filter(
    ({ id, state, acknowledged_us, muted_by }) =>
      (state === "firing" || state === "no_data") && acknowledged_us === null && muted_by === "" && !known.has(id),
  );
}
