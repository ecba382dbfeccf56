import { describe, expect, it } from "vitest";
import type { RankRow } from "../api/types";
import { parted, sorted } from "./order";

function row(rank: number, changes: Partial<RankRow> = {}): RankRow {
  return {
    rank,
    local_rank: rank,
    host: "node",
    pid: 1,
    mesh: {},
    attempt: 0,
    state: "training",
    last_step: 10,
    num_behind: 0,
    step_s: 0.1,
    busy_s: 0.1,
    wait_share: 0,
    num_nonfinite: 0,
    first_nonfinite_step: null,
    num_skipped: 0,
    memory_bytes: null,
    ...changes,
  };
}

const ranks = (rows: RankRow[]) => rows.map(({ rank }) => rank);

describe("sorted", () => {
  it("puts the gravest state first, then what is behind, not finite, and slow", () => {
    const rows = [
      row(0),
      row(1, { busy_s: 0.3 }),
      row(2, { num_nonfinite: 4 }),
      row(3, { state: "killed" }),
      row(4, { state: "waiting" }),
      row(5, { state: "stuck" }),
      row(6, { num_behind: 3 }),
    ];
    expect(ranks(sorted(rows, "worst", true))).toEqual([5, 3, 4, 6, 2, 1, 0]);
  });

  it("keeps what is not known last, whichever way a column is sorted", () => {
    const rows = [row(0, { step_s: null }), row(1, { step_s: 0.2 }), row(2, { step_s: 0.1 })];
    expect(ranks(sorted(rows, "step_s", true))).toEqual([1, 2, 0]);
    expect(ranks(sorted(rows, "step_s", false))).toEqual([2, 1, 0]);
  });
});

describe("parted", () => {
  const parting = { fact: "loss scale", attempt: 0, ranks: [1], values: [1], expected: 2 };
  const whole = { fact: "loss scale", outcome: "parted" as const, num_steps: 100 };

  it("lays each parting over the steps that it lasted, the last to the end where it lasts still", () => {
    const first = { ...parting, first_step: 25, last_step: 49 };
    const last = { ...parting, first_step: 75, last_step: null };
    const stretches: [number, number][] = [
      [25, 49],
      [60, 64],
      [75, 80],
    ];
    expect(parted({ ...whole, first, last, stretches }, 99)).toEqual([
      { from: 0.25, width: 0.25 },
      { from: 0.6, width: 0.05 },
      { from: 0.75, width: 0.25 },
    ]);
  });

  it("draws one of a single step so that it is seen, and nothing where ranks agree", () => {
    const only = { ...parting, first_step: 500_000, last_step: 500_000 };
    const stretches: [number, number][] = [[500_000, 500_000]];
    expect(parted({ ...whole, first: only, last: only, stretches }, 999_999)).toEqual([{ from: 0.5, width: 0.006 }]);
    expect(parted({ ...whole, first: null, last: null, stretches: [] }, 10)).toEqual([]);
  });
});
