import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { drawSoon, forget } from "./drawing";

let frames: (() => void)[];
let nowMs: number;
let drawn: string[];

const slow = (what: string) => () => {
  drawn.push(what);
  nowMs += 20;
};
const nextFrame = () => frames.shift()?.();

beforeEach(() => {
  frames = [];
  nowMs = 0;
  drawn = [];
  vi.stubGlobal("requestAnimationFrame", (frame: () => void) => frames.push(frame));
  vi.spyOn(performance, "now").mockImplementation(() => nowMs);
});

afterEach(() => {
  while (frames.length > 0) nextFrame();
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
});

test("slow charts are drawn one a frame, quick ones together", () => {
  const [a, b, c] = [{}, {}, {}];
  drawSoon(a, slow("a"));
  drawSoon(b, () => drawn.push("b"));
  drawSoon(c, () => drawn.push("c"));
  expect(drawn).toEqual([]);
  nextFrame();
  expect(drawn).toEqual(["a"]);
  nextFrame();
  expect(drawn).toEqual(["a", "b", "c"]);
  expect(frames).toEqual([]);
});

test("of a chart the newest picture is drawn, in the place of the older one", () => {
  const [a, b] = [{}, {}];
  drawSoon(a, slow("a1"));
  drawSoon(b, slow("b1"));
  drawSoon(a, slow("a2"));
  nextFrame();
  drawSoon(a, slow("a3"));
  nextFrame();
  nextFrame();
  expect(drawn).toEqual(["a2", "b1", "a3"]);
});

test("a chart that is gone, or that fails, takes no other with it", () => {
  const [a, b, c] = [{}, {}, {}];
  drawSoon(a, slow("a"));
  drawSoon(b, () => {
    throw new Error("cannot be drawn");
  });
  drawSoon(c, slow("c"));
  forget(a);
  expect(nextFrame).toThrow("cannot be drawn");
  nextFrame();
  expect(drawn).toEqual(["c"]);
});
