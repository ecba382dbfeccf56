import { describe, expect, it } from "vitest";
import {
  formatAge,
  formatBytes,
  formatCompact,
  formatCount,
  formatLoss,
  formatScale,
  formatShare,
  formatSpan,
  shortenMiddle,
} from "./format";

describe("numbers", () => {
  it.each([
    [12400, "12,400"],
    [0, "0"],
    [null, "–"],
  ])("formatCount(%s) is %s", (value, text) => expect(formatCount(value)).toBe(text));

  it.each([
    [1236, "1.24k"],
    [3_500_000, "3.5M"],
    [999.6, "1k"],
    [999_600, "1M"],
    [0.0123, "0.0123"],
    ["NaN", "NaN"],
    ["-Infinity", "-Inf"],
    [null, "–"],
  ] as const)("formatCompact(%s) is %s", (value, text) => expect(formatCompact(value)).toBe(text));

  it.each([
    [4.56789, "4.568"],
    [0.5, "0.5000"],
    [0.0000123, "1.230e-5"],
    [12345.6, "12346"],
    [0, "0.000"],
    ["Infinity", "+Inf"],
  ] as const)("formatLoss(%s) is %s", (value, text) => expect(formatLoss(value)).toBe(text));

  it("writes a loss scale as a power of two and says it in words", () => {
    expect(formatScale(65536)).toEqual({ text: "2¹⁶", label: "2 to the power of 16, 65,536" });
    expect(formatScale(49152).text).toBe("2¹⁵·⁶");
    expect(formatScale(0.5).text).toBe("2⁻¹");
    expect(formatScale(null)).toEqual({ text: "–", label: "no loss scale" });
  });

  it.each([
    [0, "0"],
    [0.00005, "< 0.01%"],
    [0.0005, "0.05%"],
    [0.12345, "12.3%"],
    [1, "100%"],
  ])("formatShare(%s) is %s", (value, text) => expect(formatShare(value)).toBe(text));

  it("writes bytes in binary units", () => {
    expect(formatBytes(512)).toBe("512 B");
    expect(formatBytes(1.5 * 2 ** 30)).toBe("1.5 GiB");
  });
});

describe("times", () => {
  it("gives ages in one unit", () => {
    const now = 1_000_000_000;
    expect(formatAge((now - 12_000) * 1000, now)).toBe("12 s");
    expect(formatAge((now - 3 * 3_600_000) * 1000, now)).toBe("3 h");
    expect(formatAge((now + 5000) * 1000, now)).toBe("0 s");
  });

  it.each([
    [0.038, "38 ms"],
    [4.2, "4 s"],
    [180, "3 min"],
    [8040, "2 h 14 min"],
    [7200, "2 h"],
  ])("formatSpan(%s) is %s", (seconds, text) => expect(formatSpan(seconds)).toBe(text));
});

describe("names", () => {
  it("keeps both ends of a long one", () => {
    const short = shortenMiddle("transformer.layers.11.self_attention.output_projection", 32);
    expect(short).toHaveLength(32);
    expect(short.startsWith("transformer")).toBe(true);
    expect(short.endsWith("output_projection")).toBe(true);
    expect(shortenMiddle("fc1")).toBe("fc1");
  });
});
