import { describe, expect, it } from "vitest";
import { fromSteps, parseView, toSteps, toWindow } from "./view";

const CLOCK: [number, number][] = [
  [0, 1_000_000],
  [100, 2_000_000],
  [200, 6_000_000],
];

describe("parseView", () => {
  it("reads the keys of the URL", () => {
    expect(parseView(new URLSearchParams("x=time&r=10-20&y=log&s=0.9&layer=b.0&stat=norm&step=7&u=seen"))).toEqual({
      x: "time",
      range: [10, 20],
      y: "log",
      smooth: 0.9,
      layer: "b.0",
      stat: "norm",
      step: 7,
      gradient: "seen",
      rank: null,
    });
  });

  it("takes what it cannot read as not given", () => {
    expect(parseView(new URLSearchParams("x=mass&r=20-10&y=sqrt&s=2&stat=mean&step=-3&u=both"))).toEqual({
      x: "step",
      range: null,
      y: "auto",
      smooth: 0,
      layer: "",
      stat: "underflow",
      step: null,
      gradient: "auto",
      rank: null,
    });
  });
});

describe("steps and times", () => {
  it("are the same stretch on both axes", () => {
    const range = fromSteps("time", [50, 150], CLOCK);
    expect(range).toEqual([1_500_000, 4_000_000]);
    expect(toSteps({ x: "time", range }, CLOCK)).toEqual([50, 150]);
  });

  it("end where the clock ends", () => {
    expect(fromSteps("time", [-5, 900], CLOCK)).toEqual([1_000_000, 6_000_000]);
  });

  it("need a clock", () => {
    expect(fromSteps("time", [0, 10], [])).toBeNull();
    expect(fromSteps("step", [0, 10], [])).toEqual([0, 10]);
  });
});

describe("toWindow", () => {
  it("follows the end without a range", () => {
    const window = toWindow(parseView(new URLSearchParams()), 800);
    expect(window).toMatchObject({ x: "step", first: null, last: null, y: "auto", smooth: 0, width_px: 800 });
  });
});
