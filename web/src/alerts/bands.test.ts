import { describe, expect, it } from "vitest";
import type { AlertBand } from "../api/types";
import { bandShapes, ofLayer, ofPanel, onAxis, type XAxis } from "./bands";

function band(changes: Partial<AlertBand> = {}): AlertBand {
  return {
    alert: "a1",
    panel: "loss",
    layer: "",
    first_step: 100,
    last_step: 200,
    severity: "critical",
    text: "",
    ...changes,
  };
}

const steps: XAxis = { x: "step", utcOffsetMin: 0, clock: [] };
const shown = [0, 1000] as const;

describe("which bands a chart shows", () => {
  it("is by panel on the Overview and by layer or module on Layers", () => {
    const bands = [band(), band({ panel: "", layer: "block.3.fc1" }), band({ panel: "", layer: "block.30.fc1" })];
    expect(ofPanel(bands, "loss")).toEqual([bands[0]]);
    expect(ofPanel(bands, "")).toEqual([]);
    expect(ofLayer(bands, "block.3")).toEqual([bands[1]]);
    expect(ofLayer(bands, "block.30.fc1")).toEqual([bands[2]]);
  });
});

describe("places on the axis", () => {
  it("are steps, or milliseconds of the viewer's wall clock", () => {
    const clock: [number, number][] = [
      [0, 1_000_000_000],
      [1000, 2_000_000_000],
    ];
    expect(onAxis([band()], steps, "a1")).toEqual([
      { severity: "critical", from: 100, to: 200, isMarked: true, isBar: false },
    ]);
    expect(onAxis([band()], { x: "time", utcOffsetMin: 60, clock }, "")).toEqual([
      { severity: "critical", from: 1_100_000 + 3_600_000, to: 1_200_000 + 3_600_000, isMarked: false, isBar: false },
    ]);
    expect(onAxis([band()], { x: "time", utcOffsetMin: 0, clock: [] }, "")).toEqual([]);
  });
});

describe("shapes", () => {
  it("reach to the end of what is shown while a rule fires still", () => {
    const [shape] = bandShapes(onAxis([band({ last_step: null })], steps, ""), shown);
    expect(shape).toMatchObject({ x0: 100, x1: 1000, name: "role:critical", layer: "below" });
  });

  it("never widen the axis, and leave out what lies beside it", () => {
    const bands = onAxis([band(), band({ first_step: 5, last_step: 8 }), band({ first_step: 990 })], steps, "");
    const shapes = bandShapes(bands, [150, 500]);
    expect(shapes).toHaveLength(1);
    expect(shapes[0]).toMatchObject({ x0: 150, x1: 200 });
  });

  it("can be seen when they are a step of a million", () => {
    const [shape] = bandShapes(onAxis([band({ last_step: 100 })], steps, ""), [0, 1_000_000]);
    expect(Number(shape?.x1) - Number(shape?.x0)).toBeGreaterThan(2000);
  });

  it("are a bar along the edge where the ground has a meaning", () => {
    const [shape] = bandShapes(onAxis([band()], steps, "", true), shown);
    expect(shape).toMatchObject({ y0: 0.985, y1: 1, layer: "above" });
  });

  it("mark the one that was come for by its edge", () => {
    const [marked, other] = bandShapes(onAxis([band(), band({ alert: "a2" })], steps, "a1"), shown);
    expect(marked?.line).toEqual({ width: 1.5 });
    expect(other?.line).toBeUndefined();
  });
});
