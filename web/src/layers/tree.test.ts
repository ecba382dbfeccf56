import { describe, expect, it } from "vitest";
import { makeNodes } from "../test/samples";
import {
  ancestors,
  countFound,
  heatmapRows,
  indexNodes,
  moveBy,
  openAtFirst,
  type TreeRow,
  visibleRows,
  worstLayers,
} from "./tree";

const ITEMS = indexNodes(
  makeNodes(
    "embed.",
    "embed.weight",
    "block.",
    "block.0.",
    "block.0.fc.",
    "block.0.fc.weight",
    "block.0.fc.bias",
    "block.1.",
    "block.1.fc.",
    "block.1.fc.weight",
    "head",
  ),
);

const names = (rows: TreeRow[]) => rows.map(({ item }) => item.node.name);

describe("indexNodes", () => {
  it("knows parent, end and place among siblings from order and depth", () => {
    expect(ITEMS.map(({ parent }) => parent)).toEqual([-1, 0, -1, 2, 3, 4, 4, 2, 7, 8, -1]);
    expect(ITEMS.map(({ end }) => end)).toEqual([2, 2, 10, 7, 7, 6, 7, 10, 10, 10, 11]);
    expect(ITEMS[10]).toMatchObject({ position: 3, siblings: 3 });
    expect(ITEMS[6]).toMatchObject({ position: 2, siblings: 2 });
  });

  it("leaves the root out", () => {
    const [root] = makeNodes("x.");
    expect(indexNodes([{ ...root, name: "", depth: 0 } as (typeof ITEMS)[0]["node"], ...makeNodes("a")])).toHaveLength(
      1,
    );
  });
});

describe("visibleRows", () => {
  it("shows what lies below open modules only", () => {
    const rows = visibleRows(ITEMS, openAtFirst(ITEMS), "");
    expect(names(rows)).toEqual(["embed", "embed.weight", "block", "block.0", "block.1", "head"]);
    expect(rows[2]).toMatchObject({ isOpen: true, hasChildren: true });
    expect(rows[3]).toMatchObject({ isOpen: false, hasChildren: true });
    expect(rows[5]).toMatchObject({ isOpen: false, hasChildren: false });
  });

  it("shows what a search finds with all that is above, also in closed modules", () => {
    expect(names(visibleRows(ITEMS, new Set(), "0.FC.b"))).toEqual([
      "block",
      "block.0",
      "block.0.fc",
      "block.0.fc.bias",
    ]);
    expect(names(visibleRows(ITEMS, new Set(), "nowhere"))).toEqual([]);
  });

  it("counts layers, not modules", () => {
    expect(countFound(ITEMS, "")).toBe(5);
    expect(countFound(ITEMS, "block.0")).toBe(2);
  });

  it("copes with thousands of layers", () => {
    const many = indexNodes(
      makeNodes(...Array.from({ length: 2500 }, (_, at) => [`m${at}.`, `m${at}.a`, `m${at}.b`]).flat()),
    );
    expect(visibleRows(many, openAtFirst(many), "")).toHaveLength(7500);
    expect(visibleRows(many, new Set(), "m77")).toHaveLength(11 * 3);
  });
});

describe("ancestors", () => {
  it("names everything above", () => {
    expect(ancestors(ITEMS, "block.0.fc.bias")).toEqual(["block.0.fc", "block.0", "block"]);
    expect(ancestors(ITEMS, "head")).toEqual([]);
    expect(ancestors(ITEMS, "unknown")).toEqual([]);
  });
});

describe("moveBy", () => {
  const rows = visibleRows(ITEMS, openAtFirst(ITEMS), "");

  it("moves like a tree", () => {
    expect(moveBy("ArrowDown", rows, 0)).toEqual({ active: 1 });
    expect(moveBy("ArrowUp", rows, 0)).toEqual({ active: 0 });
    expect(moveBy("End", rows, 0)).toEqual({ active: 5 });
    expect(moveBy("ArrowRight", rows, 3)).toEqual({ toggle: "block.0" });
    expect(moveBy("ArrowRight", rows, 2)).toEqual({ active: 3 });
    expect(moveBy("ArrowRight", rows, 5)).toBeNull();
    expect(moveBy("ArrowLeft", rows, 2)).toEqual({ toggle: "block" });
    expect(moveBy("ArrowLeft", rows, 3)).toEqual({ active: 2 });
    expect(moveBy("Enter", rows, 3)).toEqual({ select: "block.0" });
    expect(moveBy("x", rows, 3)).toBeNull();
    expect(moveBy("ArrowDown", [], 0)).toBeNull();
  });
});

describe("what the charts are asked for", () => {
  it("keeps the rows of a request within what servers take", () => {
    const many = indexNodes(makeNodes(...Array.from({ length: 600 }, (_, at) => `layer_${at}`)));
    expect(heatmapRows(visibleRows(many, new Set(), ""))).toHaveLength(400);
    const long = indexNodes(makeNodes(...Array.from({ length: 100 }, (_, at) => `${"é".repeat(150)}${at}`)));
    const rows = heatmapRows(visibleRows(long, new Set(), ""));
    expect(rows.length).toBeGreaterThan(5);
    expect(new URLSearchParams(rows.map((name) => ["rows", name])).toString().length).toBeLessThan(17_000);
  });

  it("lists the worst layers first", () => {
    const nodes = makeNodes("a", "b", "m.", "m.c", "m.d");
    const graded = indexNodes(
      nodes.map((node) => ({
        ...node,
        severity: node.name === "m.d" ? "critical" : node.name === "b" || node.kind === "module" ? "warning" : "ok",
      })),
    );
    expect(worstLayers(graded, "m.c", 3).map(({ name }) => name)).toEqual(["m.d", "b", "m.c"]);
  });
});
