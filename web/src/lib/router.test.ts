import { beforeEach, describe, expect, it } from "vitest";
import { currentPlace, navigate, setQuery } from "./router";

describe("the address", () => {
  beforeEach(() => history.replaceState(null, "", "/"));

  it("goes to a place and back to it by its text", () => {
    navigate("/runs/a?x=time");
    expect(currentPlace()).toBe("/runs/a?x=time");
  });

  it("sets and removes keys and leaves the others", () => {
    navigate("/runs/a?x=time&y=log");
    setQuery({ r: "10-20", y: null });
    expect(currentPlace()).toBe("/runs/a?x=time&r=10-20");
    setQuery({ x: null, r: "" });
    expect(currentPlace()).toBe("/runs/a");
  });

  it("writes lists as repeated keys", () => {
    setQuery({ tag: ["a, b", "c"] });
    expect(new URLSearchParams(location.search).getAll("tag")).toEqual(["a, b", "c"]);
  });
});
