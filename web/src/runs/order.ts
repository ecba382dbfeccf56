/** Keeps rows where they are while the pointer is among them. */

import { useEffect, useRef, useState } from "react";

/** `wanted` in the order that is shown: what is there stays in place, what is new comes last, what is gone leaves. */
export function holdOrder(shown: string[], wanted: string[]): string[] {
  const present = new Set(wanted);
  const before = new Set(shown);
  return [...shown.filter((id) => present.has(id)), ...wanted.filter((id) => !before.has(id))];
}

export function countMoved(shown: string[], wanted: string[]): number {
  return wanted.filter((id, at) => shown[at] !== id).length;
}

export interface HeldOrder {
  order: string[];
  /** Rows that stand elsewhere than they should. */
  moved: number;
  apply: () => void;
}

/** @param sortKey a change of it is the user's own wish and applies at once. */
export function useHeldOrder(wanted: string[], held: boolean, sortKey: string): HeldOrder {
  const last = useRef({ order: wanted, sortKey, applied: 0 });
  const [applied, setApplied] = useState(0);
  const mayMove = !held || last.current.sortKey !== sortKey || last.current.applied !== applied;
  const order = mayMove ? wanted : holdOrder(last.current.order, wanted);
  useEffect(() => {
    last.current = { order, sortKey, applied };
  });
  return { order, moved: countMoved(order, wanted), apply: () => setApplied(applied + 1) };
}
