/** Short messages at the lower edge, read out politely, gone after six seconds. */

import { useEffect, useSyncExternalStore } from "react";

interface Toast {
  id: number;
  text: string;
  isError: boolean;
}

const SHOWN_MS = 6000;
let toasts: Toast[] = [];
let lastId = 0;
const listeners = new Set<() => void>();

function change(next: Toast[]): void {
  toasts = next;
  for (const listener of listeners) listener();
}

export function toast(text: string, { isError = false } = {}): void {
  lastId += 1;
  change([...toasts.slice(-2), { id: lastId, text, isError }]);
}

export function Toasts() {
  const shown = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => toasts,
  );
  const newest = shown.at(-1)?.id;
  useEffect(() => {
    if (newest === undefined) return;
    const timer = setTimeout(() => change([]), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [newest]);
  return (
    <div className="toasts" role="status">
      {shown.map(({ id, text, isError }) => (
        <div key={id} className={isError ? "toast toast-error" : "toast"}>
          {text}
        </div>
      ))}
    </div>
  );
}
