/** Addresses of comparisons, and which of some runs the others are held against. */

import type { RunSummary } from "../api/types";

/** As many as the server takes. */
export const MOST_MEMBERS = 8;

/** Where runs stand beside each other, the baseline first. */
export function compareAddress(runs: readonly string[]): string {
  return `/compare?runs=${runs.map(encodeURIComponent).join(",")}`;
}

export const savedAddress = (id: string) => `/compare/${encodeURIComponent(id)}`;

type Held = Pick<RunSummary, "id" | "precision_role"> & { baseline?: RunSummary["baseline"] };

/** Chosen runs with the baseline first: the run that another names as its baseline, else the first in FP32, else the first.
 *
 * The others stay in the order they were chosen in.
 */
export function baselineFirst(chosen: readonly Held[]): string[] {
  const named = new Set(chosen.map(({ baseline }) => baseline?.run));
  const first =
    chosen.find(({ id }) => named.has(id)) ?? chosen.find((run) => run.precision_role === "fp32") ?? chosen[0];
  return first ? withFirst(chosen, first.id) : [];
}

function withFirst(chosen: readonly { id: string }[], first: string): string[] {
  return [first, ...chosen.map(({ id }) => id).filter((id) => id !== first)];
}
