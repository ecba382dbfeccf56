import { describe, expect, it } from "vitest";
import type { RugMark } from "../api/types";
import { placeMarks } from "./rug";

function mark(step: number, changes: Partial<RugMark> = {}): RugMark {
  return {
    first_step: step,
    last_step: step,
    count: 1,
    role: "calm",
    mark: "a",
    severity: "info",
    text: `${step}`,
    ...changes,
  };
}

describe("placeMarks", () => {
  const strip = { first_step: 0, last_step: 1000 };

  it("stands on the strip's scale, and at its edges for what lies outside", () => {
    const places = placeMarks([mark(-5), mark(500), mark(2000)], strip, 200);
    expect(places.map(({ x }) => x)).toEqual([0, 100, 200]);
  });

  it("joins what would touch, keeps the gravest and every count and text", () => {
    const grave = { role: "grave", mark: "b", severity: "critical" } as const;
    const places = placeMarks([mark(100, { count: 2 }), mark(101, { count: 3, ...grave }), mark(150)], strip, 1000);
    expect(places).toHaveLength(2);
    expect(places[0]).toMatchObject({ x: 100, count: 5, text: "100\n101", ...grave });
  });

  it("loses no event, however narrow", () => {
    const marks = Array.from({ length: 300 }, (_, at) => mark(at * 3, { count: 1 + (at % 4) }));
    for (const width of [20, 300, 1600]) {
      const places = placeMarks(marks, strip, width);
      const sum = (counts: { count: number }[]) => counts.reduce((total, { count }) => total + count, 0);
      expect(sum(places)).toBe(sum(marks));
      expect(places.every(({ x }, at) => at === 0 || x - (places[at - 1]?.x ?? 0) >= 4)).toBe(true);
    }
  });
});
