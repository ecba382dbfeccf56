import { describe, expect, it } from "vitest";
import { outline, scaleFor, xOf, yOf } from "./geometry";

const area = { width: 100, height: 50 };

describe("the vertical scale", () => {
  it("stands on zero where nothing is negative", () => {
    const scale = scaleFor({ low: [0.01, 0.02], high: [0.01, 0.04] }, [0.03]);
    expect(scale).toMatchObject({ isLog: false, bottom: 0 });
    expect(scale.top).toBeGreaterThan(0.04);
  });

  it("keeps numbers that hardly differ apart", () => {
    const scale = scaleFor({ low: [1000], high: [1001] }, []);
    expect(scale.bottom).toBeGreaterThan(999);
  });

  it("is a log one for what spans decades", () => {
    const scale = scaleFor({ low: [1], high: [65536] }, [16]);
    expect(scale.isLog).toBe(true);
    expect(yOf(256, scale, area)).toBeCloseTo(25, 0);
  });

  it("holds every level, and a single value", () => {
    const scale = scaleFor({ low: [1], high: [1] }, [9]);
    expect(yOf(9, scale, area)).toBeGreaterThan(0);
    const one = scaleFor({ low: [5], high: [5] }, []);
    expect(yOf(5, one, area)).toBe(25);
    expect(scaleFor({ low: ["NaN"], high: [null] }, [])).toEqual({ isLog: false, bottom: 0, top: 1 });
  });
});

describe("places", () => {
  it("reach from edge to edge and no further", () => {
    expect([0, 50, 100, 900].map((step) => xOf(step, [0, 100], area))).toEqual([0, 50, 100, 100]);
    expect(xOf(7, [7, 7], area)).toBe(50);
  });
});

describe("the outline", () => {
  const scale = { isLog: false, bottom: 0, top: 10 };
  it("goes along the highs and back along the lows", () => {
    const series = { steps: [0, 100], low: [0, 5], high: [10, 5] };
    expect(outline(series, [0, 100], scale, area)).toBe("M0 0L100 25L100 25L0 50Z");
  });

  it("is broken where there is no number", () => {
    const series = { steps: [0, 50, 100], low: [1, "NaN", 1], high: [1, null, 1] } as const;
    expect(outline(series, [0, 100], scale, area).match(/M/g)).toHaveLength(2);
  });
});
