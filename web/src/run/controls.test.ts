import { describe, expect, it } from "vitest";
import { laneRanges } from "../strip/lanes";
import { around } from "../strip/ZoomStrip";
import { makeEvent, makeStrip } from "../test/samples";
import { nextBad } from "./controls";
import { layersOf } from "./EventsTab";

const STRIP = makeStrip({
  last_step: 999,
  ranges: [
    { first_step: 100, last_step: 110, text: "a", severity: "warning" },
    { first_step: 104, last_step: 108, text: "b", severity: "warning" },
    { first_step: 990, last_step: 999, text: "c", severity: "critical" },
  ],
});

describe("nextBad", () => {
  it("visits every stretch once, also those that overlap or touch the end", () => {
    const ranges = laneRanges(STRIP, null);
    const visited: string[] = [];
    let steps: [number, number] | null = null;
    for (;;) {
      const next = nextBad(STRIP, ranges, steps, 1);
      if (!next) break;
      visited.push(next.text);
      steps = around(STRIP, next.first_step, next.last_step);
    }
    expect(visited).toEqual(["a", "b", "c"]);
    expect(nextBad(STRIP, ranges, steps, -1)?.text).toBe("b");
  });

  it("goes on from the middle of any zoom", () => {
    const ranges = laneRanges(STRIP, null);
    expect(nextBad(STRIP, ranges, [400, 600], 1)?.text).toBe("c");
    expect(nextBad(STRIP, ranges, [400, 600], -1)?.text).toBe("b");
    expect(nextBad(STRIP, ranges, null, -1)?.text).toBe("c");
  });
});

describe("layersOf", () => {
  it("begins with the origin, keeps layers only, and each once", () => {
    const known = new Set(["a", "b", "c", "d"]);
    const event = makeEvent({ where: ["optimizer", "b", "a"], details: { origin_layer: "a", nonfinite: ["c", "d"] } });
    expect(layersOf(event, known)).toEqual(["a", "b", "c"]);
    expect(layersOf(makeEvent({ where: ["optimizer"] }), known)).toEqual([]);
  });
});
