import { describe, expect, it } from "vitest";
import { makeStrip } from "../test/samples";
import { laneRanges, lanesText, rangeAt, tellingBins } from "./lanes";
import { decodeStrip } from "./paint";
import { pickAt } from "./Strip";

const UPPER = makeStrip();
/** Twice as fine as the upper lane, and over half of its steps. */
const LOWER = makeStrip({
  lane: "underflow",
  last_step: 49,
  num_bins: 10,
  texts: { 4: "steps 20-24: underflow 0.8% in block.3", 5: "step 25: underflow 2% in block.3" },
  ranges: [
    {
      first_step: 20,
      last_step: 24,
      text: "steps 20-24: underflow 21% in block.3",
      severity: "warning",
      layer: "a",
      step: 22,
    },
  ],
});

describe("lanesText", () => {
  it("reads both lanes as one sentence", () => {
    const lanes = [decodeStrip(UPPER), decodeStrip(LOWER)] as const;
    expect(lanesText(...lanes, 2)).toBe("steps 20-29: 1 tick, underflow 2% in block.3");
    expect(lanesText(...lanes, 1)).toBe("steps 10-19: clean");
    expect(lanesText(...lanes, 9)).toBe("steps 90-99: clean");
    expect(lanesText(lanes[0], null, 2)).toBe("steps 20-29: 1 tick");
  });
});

describe("where there is something to tell", () => {
  it("stops at what either lane tells", () => {
    expect(tellingBins(UPPER, LOWER)).toEqual([2, 5]);
    expect(tellingBins(UPPER, null)).toEqual([2, 5]);
    expect(tellingBins(makeStrip({ texts: {} }), LOWER)).toEqual([2]);
  });

  it("lists the bad stretches of both lanes in order", () => {
    expect(laneRanges(UPPER, LOWER).map(({ lane, first_step }) => [lane, first_step])).toEqual([
      ["underflow", 20],
      ["steps", 52],
    ]);
    expect(laneRanges(UPPER, null)).toHaveLength(1);
  });

  it("prefers the gravest stretch at a place", () => {
    const ranges = laneRanges(
      UPPER,
      makeStrip({ lane: "underflow", ranges: [{ ...LOWER.ranges[0], first_step: 0, last_step: 99 } as never] }),
    );
    expect(rangeAt(ranges, 50, 59)?.severity).toBe("critical");
    expect(rangeAt(ranges, 50, 59, "steps")?.lane).toBe("steps");
    expect(rangeAt(ranges, 50, 59, "underflow")?.lane).toBe("underflow");
    expect(rangeAt(ranges, 10, 10, "steps")?.lane).toBe("underflow");
    expect(rangeAt(ranges, 10, 10)?.severity).toBe("warning");
    expect(rangeAt(laneRanges(UPPER, null), 10, 10)).toBeNull();
  });

  it("means a narrow mark also when the click is a few pixels beside it", () => {
    const ranges = laneRanges(makeStrip({ num_bins: 100 }), null);
    const strip = makeStrip({ num_bins: 100 });
    expect(pickAt(strip, ranges, 0.53, 1000)?.range.first_step).toBe(52);
    expect(pickAt(strip, ranges, 0.517, 1000)?.range.first_step).toBe(52);
    expect(pickAt(strip, ranges, 0.5, 1000)).toBeNull();
  });
});
