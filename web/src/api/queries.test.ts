import { describe, expect, it } from "vitest";
import { ApiError, UNREACHABLE } from "./client";
import { makeQueryClient } from "./queries";

const { retry, retryDelay } = makeQueryClient().getDefaultOptions().queries ?? {};
if (typeof retry !== "function" || typeof retryDelay !== "function") throw new Error("the client retries by functions");

describe("what is asked for", () => {
  it("stays asked for while the server is away, ever more slowly", () => {
    const away = new ApiError(0, UNREACHABLE, "The server does not answer.");
    expect([0, 2, 500].map((count) => retry(count, away))).toEqual([true, true, true]);
    expect([0, 1, 2, 3, 500].map((count) => retryDelay(count, away))).toEqual([400, 800, 1600, 3200, 3200]);
  });

  it("is given up after two tries where the server fails, and at once where it refuses", () => {
    expect([0, 1, 2].map((count) => retry(count, new ApiError(500, "boom", "no")))).toEqual([true, true, false]);
    expect(retry(0, new ApiError(404, "not_found", "no"))).toBe(false);
  });
});
