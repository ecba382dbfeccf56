import { describe, expect, it } from "vitest";
import { makeStrip } from "../test/samples";
import { binSteps, binText, decodeStrip, paintStrip } from "./paint";

/** Paints into an array: which colour is on top at each x, and how high. The pixels themselves are checked in a browser. */
function paint(width: number, height: number, strip = makeStrip()): { color: string; height: number }[] {
  const columns = Array.from({ length: width }, () => ({ color: "", height: 0 }));
  const context = {
    fillStyle: "",
    clearRect() {},
    fillRect(x: number, _y: number, w: number, h: number) {
      for (let at = x; at < x + w; at++) columns[at] = { color: this.fillStyle, height: h };
    },
  };
  const canvas = { width, height, getContext: () => context } as unknown as HTMLCanvasElement;
  paintStrip(canvas, decodeStrip(strip), (role) => role, 1);
  return columns;
}

describe("paintStrip", () => {
  it("gives every cell its place and height", () => {
    const columns = paint(100, 20);
    expect(columns[0]).toEqual({ color: "calm", height: 3 });
    expect(columns[25]).toEqual({ color: "small", height: 7 });
    expect(columns[55]).toEqual({ color: "grave", height: 20 });
    expect(columns.every(({ color }) => color !== "")).toBe(true);
  });

  it("keeps a grave cell at its least width where many cells share a pixel", () => {
    const columns = paint(4, 20);
    expect(columns.filter(({ color }) => color === "grave")).toHaveLength(2);
  });

  it("keeps the last cell inside the canvas", () => {
    const cells = btoa(String.fromCharCode(...Array(9).fill(0), 2));
    const columns = paint(5, 20, makeStrip({ cells, heights: btoa(String.fromCharCode(...Array(10).fill(255))) }));
    expect(columns).toHaveLength(5);
    expect(columns.slice(3).map(({ color }) => color)).toEqual(["grave", "grave"]);
  });
});

describe("read-outs", () => {
  it("tells the server's text, else the class and its steps", () => {
    const decoded = decodeStrip(makeStrip());
    expect(binText(decoded, 2)).toBe("steps 20-29: 1 tick");
    expect(binText(decoded, 0)).toBe("steps 0-9: clean");
  });

  it("covers every step, also with more bins than steps", () => {
    expect(binSteps(makeStrip(), 9)).toEqual([90, 99]);
    expect(binSteps(makeStrip({ last_step: 1 }), 0)).toEqual([0, 0]);
    expect(binSteps(makeStrip({ last_step: 1 }), 9)).toEqual([1, 1]);
  });
});
