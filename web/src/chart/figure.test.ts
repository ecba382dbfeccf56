import { describe, expect, it } from "vitest";
import type { Palette } from "../lib/theme";
import { makeFigure } from "../test/samples";
import { axisValue, buildFigure, fade, mergeOver } from "./figure";
import contract from "./painting.json";

const COLORS: Record<string, string> = { warm: "#FF8000", line: "#111111", muted: "#222222" };
const palette: Palette = { mode: "light", color: (role) => COLORS[role] ?? "transparent" };
const interaction = { windowKey: "w1", canDrag: true };

describe("mergeOver", () => {
  it("merges objects and replaces arrays whole", () => {
    const under = { a: { b: 1, c: 2 }, x: { dtype: "i4", bdata: "old", shape: "3" }, list: [1, 2, 3] };
    const over = { a: { c: 3 }, x: { dtype: "f8", bdata: "new" }, list: [4] };
    expect(mergeOver(under, over)).toEqual({ a: { b: 1, c: 3 }, x: { dtype: "f8", bdata: "new" }, list: [4] });
    expect(under.a.c).toBe(2);
  });
});

describe("buildFigure", () => {
  it("turns the role of a trace into its colours and keeps what the server set", () => {
    const { data } = buildFigure(makeFigure(), palette, interaction);
    expect(data[0]).toMatchObject({
      line: { color: "#FF8000", width: 2 },
      marker: { color: "#FF8000" },
      x: { bdata: "AAAA" },
    });
  });

  it("shades zones and areas in their role", () => {
    const { skeleton, fill } = makeFigure();
    const figure = makeFigure({
      skeleton: {
        data: [{ ...(skeleton.data as object[])[0], fill: "tonexty" }],
        layout: { shapes: [{ type: "rect", name: "role:warm" }], annotations: [{ text: "zone", name: "role:warm" }] },
      },
      fill,
    });
    const { data, layout } = buildFigure(figure, palette, interaction);
    expect(data[0]?.fillcolor).toBe("rgba(255,128,0,0.16)");
    expect(layout.shapes).toMatchObject([{ fillcolor: "rgba(255,128,0,0.16)" }]);
    expect(layout.annotations).toMatchObject([{ font: { color: "#FF8000" } }]);
  });

  it("lets the axes follow the window and forbids vertical zoom on every axis", () => {
    const figure = makeFigure({ skeleton: { data: [], layout: { xaxis: { title: { text: "step" } }, yaxis2: {} } } });
    const { layout } = buildFigure(figure, palette, interaction);
    expect(layout.xaxis).toMatchObject({ uirevision: "w1", title: { text: "step" }, gridcolor: "#111111" });
    expect(layout.yaxis).toMatchObject({ fixedrange: true });
    expect(layout.yaxis2).toMatchObject({ fixedrange: true });
    expect(layout.uirevision).toBe("k1");
  });
});

describe("painting", () => {
  /** A colour of its own for each role, and what the example writes for it. */
  const roles = ["warm", "quiet", "bad", "good", "fp16", "muted", "panel", "line", "text"];
  const hex = (role: string) => `#0000${(roles.indexOf(role) + 1).toString(16).padStart(2, "0")}`;
  const told = (_: string, role: string, opacity?: string) => (opacity ? fade(hex(role), Number(opacity)) : hex(role));
  /** What a page adds to how things look: zoom, what stays between updates, its toolbar. */
  const ours = ["uirevision", "dragmode", "modebar", "fixedrange"];

  it("is what files get too", () => {
    const expected = JSON.parse(JSON.stringify(contract.painted).replace(/role\((\w+)(?:,([\d.]+))?\)/g, told));
    const { skeleton, fill } = contract.figure;
    const figure = makeFigure({ skeleton, fill: { ...makeFigure().fill, ...fill } });
    const painted = buildFigure(figure, { mode: "light", color: hex }, interaction);
    const found = JSON.parse(JSON.stringify(painted, (key, value) => (ours.includes(key) ? undefined : value)));
    expect(found).toEqual(expected);
  });
});

describe("colours and axes", () => {
  it("fades only what it can read", () => {
    expect(fade("#102030", 0.5)).toBe("rgba(16,32,48,0.5)");
    expect(fade("Canvas", 0.5)).toBe("Canvas");
  });

  it("brings an end of the axis back to the units of the URL", () => {
    expect(axisValue(12.5, "step", 0)).toBe(12.5);
    expect(axisValue(-3, "step", 0)).toBe(0);
    expect(axisValue("2026-01-01 01:00:00.5", "time", 60)).toBe(Date.UTC(2026, 0, 1) * 1000 + 500_000);
    expect(axisValue("nonsense", "time", 0)).toBeNull();
  });
});
