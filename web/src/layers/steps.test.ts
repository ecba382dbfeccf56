import { describe, expect, it } from "vitest";
import { unpack } from "../chart/arrays";
import { bytes, makeFigure } from "../test/samples";
import { columnPlaces, neighbour } from "./steps";

describe("unpack", () => {
  it("reads lists and packed arrays", () => {
    expect(unpack([1, 2])).toEqual([1, 2]);
    expect(unpack({ dtype: "i4", bdata: bytes(5, 0, 0, 0, 0, 1, 0, 0) })).toEqual([5, 256]);
    expect(unpack({ dtype: "f8", bdata: bytes(0, 0, 0, 0, 0, 0, 0xf0, 0x3f) })).toEqual([1]);
    expect(unpack({ dtype: "c16", bdata: "" })).toEqual([]);
    expect(unpack(undefined)).toEqual([]);
  });
});

describe("columnPlaces", () => {
  it("takes the columns of the widest heatmap", () => {
    const { fill } = makeFigure();
    const figure = makeFigure({
      skeleton: { data: [{ type: "scatter" }, { type: "heatmap" }, { type: "heatmap" }], layout: {} },
      fill: { ...fill, data: [{ x: [1, 2, 3, 4] }, { x: [7], z: [[1]] }, { x: [0, 10, 20], z: { shape: "5, 3" } }] },
    });
    expect(columnPlaces(figure, "step", 0)).toEqual([0, 10, 20]);
    const edges = { ...figure, fill: { ...figure.fill, data: [{}, {}, { x: [0, 10, 20], z: { shape: "5, 2" } }] } };
    expect(columnPlaces(edges, "step", 0)).toEqual([0, 10]);
    expect(columnPlaces(undefined, "step", 0)).toEqual([]);
  });
});

describe("neighbour", () => {
  it("goes from one measured step to the next", () => {
    expect(neighbour([0, 10, 20], 10, 1)).toBe(20);
    expect(neighbour([0, 10, 20], 12, -1)).toBe(0);
    expect(neighbour([0, 10, 20], 20, 1)).toBe(20);
    expect(neighbour([0, 10, 20], null, -1)).toBe(10);
    expect(neighbour([0], null, -1)).toBe(0);
    expect(neighbour([], 3, 1)).toBeNull();
  });
});
