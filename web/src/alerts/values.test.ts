import { describe, expect, it } from "vitest";
import { comparedUnit, formatValue, fromField, toField } from "./values";

const aggregation = (unit: "same" | "share" | "" | "per") => ({
  id: "a",
  title: "a",
  text: "",
  needs_window: true,
  argument: "",
  default_argument: null,
  takes_baseline: false,
  unit,
});

describe("what only says whether something is so", () => {
  it("is no number", () => expect([0, 1].map((value) => formatValue(value, "flag"))).toEqual(["no", "yes"]));
});

describe("typed numbers", () => {
  it.each([
    ["1", "share", 0.01],
    ["0.5 %", "share", 0.005],
    ["2^10", "", 1024],
    ["2^-3", "", 0.125],
    ["1e-8", "", 1e-8],
    ["65,536", "", 65536],
    ["-3", "bits", -3],
    ["", "", null],
    ["much", "", null],
    ["1e999", "", null],
  ] as const)("%s in %s is %s", (text, unit, value) => expect(fromField(text, unit)).toBe(value));

  it("come back as they were typed", () => {
    for (const [text, unit] of [
      ["7", "share"],
      ["0.07", "share"],
      ["14.5", "share"],
      ["1024", ""],
    ] as const)
      expect(toField(fromField(text, unit), unit)).toBe(text);
    expect(toField(null, "share")).toBe("");
  });
});

describe("what is compared", () => {
  it("has the unit that the aggregation leaves it", () => {
    expect(comparedUnit("bytes", aggregation("same"), false)).toBe("bytes");
    expect(comparedUnit("bytes", aggregation("share"), false)).toBe("share");
    expect(comparedUnit("bytes", aggregation(""), false)).toBe("");
    expect(comparedUnit("bytes", aggregation("per"), true)).toBe("bytes/s");
    expect(comparedUnit("share", aggregation("per"), false)).toBe("/step");
    expect(comparedUnit("bits", undefined, false)).toBe("bits");
  });

  it.each([
    [0.041, "share", "4.1%"],
    [-0.2, "share", "-20%"],
    [2 ** 30, "bytes", "1 GiB"],
    [1240, "samples/s", "1.24k samples/s"],
    [1e-8, "", "1e-8"],
    ["NaN", "share", "NaN share"],
    [null, "bits", "–"],
  ] as const)("%s in %s reads %s", (value, unit, text) => expect(formatValue(value, unit)).toBe(text));
});
