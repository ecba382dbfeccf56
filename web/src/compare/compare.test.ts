import { beforeEach, describe, expect, it } from "vitest";
import { makeReport, makeRun } from "../test/samples";
import { baselineFirst, compareAddress } from "./address";
import { addressOf, parseChosen, setStretch } from "./view";
import { formatChange, formatRatio, numberRows } from "./words";

describe("which run is the baseline", () => {
  const fp16 = makeRun({ id: "half", precision_role: "fp16" });
  const fp32 = makeRun({ id: "full", precision_role: "fp32" });
  const named = { asked: "half", run: "half", name: "half", project: "demo" };

  it.each([
    ["the first FP32 run, the others as they were chosen", [fp16, makeRun({ id: "b" }), fp32], "full half b"],
    ["the one that another names", [fp32, fp16, makeRun({ id: "c", baseline: named })], "half full c"],
    ["else the first", [fp16, makeRun({ id: "b", precision_role: "bf16" })], "half b"],
  ])("is %s", (_, chosen, expected) => expect(baselineFirst(chosen).join(" ")).toBe(expected));
});

describe("the address", () => {
  beforeEach(() => history.replaceState(null, "", "/compare/abc?layer=head&r=10-20&member=b"));

  it("holds runs and options, and leaves to the server what it does not say", () => {
    const text = "runs=a,b,a&metric=val%2Floss&align=time&tol=0.02&o=overlay";
    expect(parseChosen(new URLSearchParams(text))).toEqual({
      runs: ["a", "b"],
      options: { metric: "val/loss", align: "time", tolerance: 0.02 },
      member: "",
      isOverlaid: true,
    });
    expect(parseChosen(new URLSearchParams("align=moon&tol=-1")).options).toEqual({});
  });

  it("of what is on screen needs nothing saved and keeps layer and zoom", () => {
    const address = addressOf(["a", "b"], { metric: "loss", align: "attempts", tolerance: 0.005 });
    expect(address).toBe("/compare?layer=head&r=10-20&member=b&runs=a,b&metric=loss&align=attempts&tol=0.005");
    expect(compareAddress(["a", "b"])).toBe("/compare?runs=a,b");
  });

  it.each([
    ["time", [0.4213, 0.4397], "0.4213-0.4397"],
    ["time", [12.3456, 845.2], "12-845"],
    ["attempts", [10.2, 10.4], "10-11"],
  ] as const)("of a stretch by %s keeps as much of it as can be seen", (align, [first, last], expected) => {
    setStretch([first, last], align);
    expect(new URLSearchParams(location.search).get("r")).toBe(expected);
  });
});

describe("the numbers", () => {
  it("tell a ratio that can be read, however small", () => {
    expect([0, 1.7e-6, 0.5, 24].map(formatRatio)).toEqual(["0×", "1.70e-6×", "0.5×", "24×"]);
  });

  const cell = (report: ReturnType<typeof makeReport>, title: string, member = 1) =>
    numberRows(report).find((row) => row.title === title)?.cells[member];

  it("say with a sign and a word which is worse, with the noise beside the difference", () => {
    expect(cell(makeReport(), "Final loss")).toMatchObject({
      text: "0.6000",
      detail: "+20%, noise ±0.5%",
      mark: { sign: "▼", word: "worse" },
    });
    expect(cell(makeReport(), "Final loss", 0)?.mark).toBeUndefined();
    expect(formatChange(-0.0000001)).toBe("< 0.01%");
  });

  it("tell the difference itself where the baseline's level is next to nothing", () => {
    const report = makeReport();
    report.quality = report.quality.map((one, at) => (at ? { ...one, absolute: 0.05, noise_absolute: 0.002 } : one));
    expect(cell(report, "Final loss")?.detail).toBe("+0.05000, noise ±0.002000");
  });

  it("are never more certain than the verdict", () => {
    const report = makeReport();
    const { run = "" } = report.quality[1] ?? {};
    report.verdicts = [{ run, outcome: "unknown", sentence: "", from_step: null, layer: "", reasons: [], limits: [] }];
    expect(cell(report, "Final loss")?.mark).toEqual({ sign: "?", word: "cannot be told" });
  });

  it("call a speed another only where its whole interval says so", () => {
    const at = (low: number, value: number, high: number) => {
      const report = makeReport();
      const [baseline, member] = report.cost;
      if (!baseline || !member) throw new Error("the sample has two members");
      report.cost = [baseline, { ...member, speedup: { value, low, high, count: 30 } }];
      return cell(report, "Speed");
    };
    expect(at(1.9, 1.94, 2)).toMatchObject({
      text: "1.94×",
      detail: "1.9× to 2×",
      mark: { sign: "▲", word: "faster" },
    });
    expect(at(0.4, 0.5, 0.6)?.mark).toEqual({ sign: "▼", word: "slower" });
    expect(at(0.98, 1.01, 1.04)?.mark).toEqual({ sign: "=", word: "no difference" });
  });

  it("do not compare what a difference of the runs confounds, and name it", () => {
    const report = makeReport();
    report.fairness.items = [
      { ...report.fairness.items[0], id: "batch", title: "Batch size", confounds: ["speed"] } as never,
    ];
    const [baseline, member] = report.cost;
    if (!baseline || !member) throw new Error("the sample has two members");
    report.cost = [baseline, { ...member, confounded_by: ["batch"] }];
    expect(cell(report, "Speed")?.mark).toEqual({ sign: "?", word: "not comparable: batch size" });
  });

  it("leave out what no run has, and say that a level was not reached", () => {
    const report = makeReport();
    const [baseline, member] = report.cost;
    if (!baseline || !member) throw new Error("the sample has two members");
    expect(numberRows(report).map(({ title }) => title)).not.toContain("Loss scale");
    report.cost = [
      { ...baseline, time_to_baseline_s: 40, baseline_time_s: 40 },
      { ...member, baseline_time_s: 40 },
    ];
    expect(cell(report, "Time to the baseline's level")).toEqual({ text: "not reached" });
  });
});
