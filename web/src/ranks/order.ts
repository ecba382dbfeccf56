/** In which order ranks stand in their table, and where an agreement's parted stretches lie on its bar. */

import type { RankAgreement, RankRow } from "../api/types";

export type SortKey = "worst" | "rank" | "step" | "step_s" | "busy" | "wait" | "nonfinite" | "memory";

/** Gravest first; what is not here is well. */
const STATES = ["stuck", "killed", "exception", "lost_contact", "waiting"];

function gravity(row: RankRow): number {
  const at = STATES.indexOf(row.state);
  return at < 0 ? STATES.length : at;
}

type Column = (row: RankRow) => number | null | undefined;

const COLUMNS: Record<Exclude<SortKey, "worst">, Column> = {
  rank: (row) => row.rank,
  step: (row) => row.last_step,
  step_s: (row) => row.step_s,
  busy: (row) => row.busy_s,
  wait: (row) => row.wait_share,
  nonfinite: (row) => row.num_nonfinite,
  memory: (row) => row.memory_bytes,
};

/** By state, then by what is behind, not finite and slow; or by one column, with what is not known last. */
export function sorted(rows: readonly RankRow[], key: SortKey, isDescending: boolean): RankRow[] {
  if (key === "worst") {
    return [...rows].sort(
      (a, b) =>
        gravity(a) - gravity(b) ||
        b.num_behind - a.num_behind ||
        b.num_nonfinite - a.num_nonfinite ||
        (b.busy_s ?? 0) - (a.busy_s ?? 0) ||
        a.rank - b.rank,
    );
  }
  const column = COLUMNS[key];
  const sign = isDescending ? -1 : 1;
  return [...rows].sort((a, b) => {
    const [one, other] = [column(a), column(b)];
    if (one == null || other == null) return Number(one == null) - Number(other == null) || a.rank - b.rank;
    return sign * (one - other) || a.rank - b.rank;
  });
}

/** Shares of a bar over the steps of a run, at least so wide that it is seen. */
const LEAST_SHARE = 0.006;

export interface Stretch {
  from: number;
  width: number;
}

export function parted({ last, stretches }: RankAgreement, lastStep: number): Stretch[] {
  const steps = Math.max(1, lastStep + 1);
  return stretches.map(([firstStep = 0, to = firstStep], at) => {
    const isOpen = at === stretches.length - 1 && last != null && last.last_step == null;
    const width = Math.max(LEAST_SHARE, ((isOpen ? lastStep : to) - firstStep + 1) / steps);
    return { from: Math.min(firstStep / steps, 1 - LEAST_SHARE), width: Math.min(width, 1) };
  });
}
