/** Runs that were ticked in the list, in the order of ticking; kept while one looks at other pages. */

import { useSyncExternalStore } from "react";

let selected: readonly string[] = [];
const listeners = new Set<() => void>();

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function useSelected(): readonly string[] {
  return useSyncExternalStore(subscribe, getSelected);
}

export function getSelected(): readonly string[] {
  return selected;
}

export function toggleSelected(run: string): void {
  setSelected(selected.includes(run) ? selected.filter((other) => other !== run) : [...selected, run]);
}

export function setSelected(runs: readonly string[]): void {
  selected = runs;
  for (const listener of listeners) listener();
}
