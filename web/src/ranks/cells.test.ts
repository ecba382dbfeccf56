import { describe, expect, it } from "vitest";
import { makeFigure } from "../test/samples";
import { cellAt, cellsOf, moved } from "./cells";

/** Two rows of three columns, each as [value, worst, who is to be looked at]; the middle of the second was not measured. */
const NUMBERS = [
  [5, 0, 0, 6, 0, 1, 7, 1, 1],
  [1, 2, 2, Number.NaN, Number.NaN, Number.NaN, Number.NaN, -1, 3],
].flat();

const packed = (numbers: number[]) => ({
  dtype: "f4",
  bdata: btoa(String.fromCharCode(...new Uint8Array(Float32Array.from(numbers).buffer))),
});
const heat = {
  x: [0, 10, 20, 30],
  y: [0, 1],
  z: { ...packed([5, 6, 7, 1, Number.NaN, Number.NaN]), shape: "2, 3" },
  customdata: { ...packed(NUMBERS), shape: "2, 3, 3" },
  colorbar: { title: { text: "busy time (ms)" } },
};
const { fill } = makeFigure();
const figure = makeFigure({ skeleton: { data: [{ type: "heatmap" }], layout: {} }, fill: { ...fill, data: [heat] } });

describe("cells of ranks", () => {
  const cells = cellsOf(figure, "step", 0);
  if (!cells) throw new Error("there are cells");

  it("lead to who is to be looked at, and nowhere where nothing was measured", () => {
    expect(cells.title).toBe("busy time (ms)");
    expect([0, 1, 2].map((column) => cells.rankAt({ row: 0, column }))).toEqual([0, 1, 1]);
    expect([0, 1, 2].map((column) => cells.rankAt({ row: 1, column }))).toEqual([2, null, 3]);
    expect([0, 1, 2].map((column) => cells.valueAt({ row: 1, column }))).toEqual([1, null, null]);
    expect(cells.rankAt({ row: 2, column: 0 })).toBeNull();
    expect(cellsOf(makeFigure(), "step", 0)).toBeNull();
  });

  it("are found by a place in the chart, from where a column begins to where the next does", () => {
    expect(cellAt(cells, 19.9, 0.4)).toEqual({ row: 0, column: 1 });
    expect(cellAt(cells, 20, 0.6)).toEqual({ row: 1, column: 2 });
    expect(cells.rankAt(cellAt(cells, -1, 0))).toBeNull();
  });

  it("are walked through by arrows, over what was not measured and not beyond the ends", () => {
    const newest = { row: 0, column: 2 };
    expect(moved(cells, null, "ArrowDown")).toEqual(newest);
    expect(moved(cells, { row: 1, column: 0 }, "ArrowRight")).toEqual({ row: 1, column: 2 });
    expect(moved(cells, newest, "ArrowUp")).toEqual(newest);
    expect(moved(cells, newest, "ArrowRight")).toEqual(newest);
    expect(moved(cells, { row: 0, column: 1 }, "ArrowDown")).toEqual({ row: 0, column: 1 });
    expect(moved(cells, newest, "Enter")).toBeNull();
  });
});
