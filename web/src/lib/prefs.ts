/** What this browser remembers between visits. Never data, only how it likes to see them. */

import { useSyncExternalStore } from "react";

export interface Prefs {
  theme: "system" | "light" | "dark";
  shortcuts: boolean;
  /** Columns of the Runs table shown beyond the usual ones. */
  columns: string[];
  /** The browser's own notifications of alerts, while a page is open. */
  notifications: boolean;
}

const KEY = "halfscope.prefs";
const DEFAULTS: Prefs = { theme: "system", shortcuts: true, columns: [], notifications: false };
const listeners = new Set<() => void>();
let current: Prefs = read();

function read(): Prefs {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
  } catch {
    // Storage can be forbidden or hold what an older version wrote: neither may keep the page from opening.
    return DEFAULTS;
  }
}

export function getPrefs(): Prefs {
  return current;
}

export function setPrefs(changes: Partial<Prefs>): void {
  current = { ...current, ...changes };
  try {
    localStorage.setItem(KEY, JSON.stringify(current));
  } catch {
    // Then it lasts as long as the page.
  }
  for (const listener of listeners) listener();
}

export function usePrefs(): Prefs {
  return useSyncExternalStore((listener) => {
    listeners.add(listener);
    return () => listeners.delete(listener);
  }, getPrefs);
}
