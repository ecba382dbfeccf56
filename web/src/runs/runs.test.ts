import { describe, expect, it } from "vitest";
import { makeRun } from "../test/samples";
import { sortRuns } from "./columns";
import { applyFilters, isFiltered, matchesSearch, parseFilters } from "./filters";
import { countMoved, holdOrder } from "./order";

describe("filters", () => {
  const runs = [
    makeRun({ id: "a", name: "digits-fp16", project: "digits", precision: "FP16-AMP", tags: ["night"] }),
    makeRun({ id: "b", name: "digits-fp32", project: "digits", precision: "FP32", state: "finished" }),
    makeRun({ id: "c", name: "speech", project: "audio, old", precision: "FP16-AMP", tags: ["night", "long"] }),
  ];
  const ids = (query: string) => applyFilters(runs, parseFilters(new URLSearchParams(query))).map(({ id }) => id);

  it.each([
    ["", "a b c"],
    ["q=DIGITS+16", "a"],
    ["precision=FP32&precision=FP16-AMP", "a b c"],
    ["state=finished", "b"],
    ["project=audio%2C+old", "c"],
    ["tag=night&tag=long", "c"],
    ["q=nothing", ""],
  ])("?%s leaves %s", (query, expected) => expect(ids(query).join(" ")).toBe(expected));

  it("tells whether anything is filtered", () => {
    expect(isFiltered(parseFilters(new URLSearchParams("sort=loss")))).toBe(false);
    expect(isFiltered(parseFilters(new URLSearchParams("tag=x")))).toBe(true);
    expect(matchesSearch(makeRun({ tags: ["Night"] }), "night digits")).toBe(true);
  });
});

describe("order", () => {
  it("sorts by a column both ways, non-finite and missing lowest", () => {
    const runs = [
      makeRun({ id: "a", loss: 0.5 }),
      makeRun({ id: "b", loss: "NaN" }),
      makeRun({ id: "c", loss: 2 }),
      makeRun({ id: "d", loss: null }),
    ];
    expect(sortRuns(runs, "-loss").map(({ id }) => id)).toEqual(["c", "a", "b", "d"]);
    expect(sortRuns(runs, "loss").map(({ id }) => id)).toEqual(["b", "d", "a", "c"]);
    expect(sortRuns(runs, "unknown")).toBe(runs);
  });

  it("leaves rows in place while held, adds new ones at the end and drops those that are gone", () => {
    const held = holdOrder(["a", "b", "c"], ["new", "c", "a"]);
    expect(held).toEqual(["a", "c", "new"]);
    expect(countMoved(held, ["new", "c", "a"])).toBe(2);
    expect(countMoved(held, held)).toBe(0);
  });
});
