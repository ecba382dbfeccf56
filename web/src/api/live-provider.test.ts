import { beforeEach, describe, expect, it } from "vitest";
import { parseView, toWindow } from "../run/view";
import { makeFigure, makeRun } from "../test/samples";
import { deletedKey, liveRunKey, panelErrorKey, receive } from "./live-provider";
import { makeQueryClient, ofRun, panelKey } from "./queries";
import type { ClientMessage, PanelFigure } from "./types";

const window = toWindow(parseView(new URLSearchParams()), 800);
const watched: ClientMessage = {
  type: "watch_run",
  run: "run1",
  panels: ["one"],
  window,
  strip_bins: 800,
  events: true,
};

describe("receive", () => {
  let cache = makeQueryClient();
  beforeEach(() => {
    cache = makeQueryClient();
  });

  it("puts the list and a run where the pages read them", () => {
    const summary = makeRun();
    receive(cache, { type: "runs", list: { runs: [summary], total: 1, projects: [], tags: [], precisions: [] } }, null);
    receive(cache, { type: "run", summary, strip: null, num_events: 3, catching_up_s: null }, watched);
    expect(cache.getQueryData(["runs"])).toMatchObject({ total: 1 });
    expect(cache.getQueryData(["run", "run1"])).toBe(summary);
    expect(cache.getQueryData(liveRunKey("run1"))).toMatchObject({ num_events: 3 });
  });

  it("lays a fill over the skeleton of the window that is watched", () => {
    const figure = makeFigure();
    const key = panelKey(ofRun("run1"), "one", window);
    cache.setQueryData(key, figure);
    const fill = { ...figure.fill, headline: "new" };
    receive(cache, { type: "panels", fills: [fill] }, watched);
    expect(cache.getQueryData<PanelFigure>(key)).toEqual({ ...figure, fill });
  });

  it("asks for a panel whole when the fill is for another skeleton", () => {
    const figure = makeFigure();
    const key = panelKey(ofRun("run1"), "one", window);
    cache.setQueryData(key, figure);
    receive(cache, { type: "panels", fills: [{ ...figure.fill, skeleton_id: "k2" }] }, watched);
    expect(cache.getQueryData(key)).toBe(figure);
    expect(cache.getQueryState(key)?.isInvalidated).toBe(true);
  });

  it("keeps the failure of a panel until it has a fill again", () => {
    const error = { type: "error", code: "boom", detail: "it failed", request_id: "r1", panel: "one" } as const;
    receive(cache, error, watched);
    expect(cache.getQueryData(panelErrorKey("run1", "one"))).toMatchObject({ request_id: "r1" });
    receive(cache, { type: "panels", fills: [makeFigure().fill] }, watched);
    expect(cache.getQueryData(panelErrorKey("run1", "one"))).toBeNull();
  });

  it("remembers a run that was deleted", () => {
    receive(cache, { type: "deleted", run: "run1", name: "digits", deleted_us: 5 }, watched);
    expect(cache.getQueryData(deletedKey("run1"))).toMatchObject({ name: "digits", deleted_us: 5 });
  });
});
