/** Everything the pages ask the server for, with the cache keys that live messages write to. */

import { infiniteQueryOptions, keepPreviousData, QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiError, api, unwrap } from "./client";
import type { Window } from "./types";

/** An answer that will not change by asking again. */
function isFinal(error: Error): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500;
}

export function makeQueryClient(): QueryClient {
  return new QueryClient({
    defaultOptions: {
      queries: {
        // Live messages keep the cache fresh; a request is for what they do not carry.
        staleTime: 30_000,
        gcTime: 5 * 60_000,
        refetchOnWindowFocus: false,
        // "online" of the browser says nothing about a server on the same machine.
        networkMode: "always",
        retry: (count, error) => count < 2 && !isFinal(error),
        retryDelay: (count) => 400 * 2 ** count,
      },
      mutations: { networkMode: "always" },
    },
  });
}

/** Cells of a health strip in a list; the same width for every row, so that the strips compare. */
export const LIST_STRIP_BINS = 320;

export const themeQuery = queryOptions({
  queryKey: ["theme"],
  queryFn: () => unwrap(api.GET("/api/v1/theme")),
  staleTime: Number.POSITIVE_INFINITY,
});

export const serverQuery = queryOptions({
  queryKey: ["server"],
  queryFn: () => unwrap(api.GET("/api/v1/server")),
});

export const runsQuery = queryOptions({
  queryKey: ["runs"],
  queryFn: () => unwrap(api.GET("/api/v1/runs", { params: { query: { strip_bins: LIST_STRIP_BINS } } })),
});

export const runQuery = (run: string) =>
  queryOptions({
    queryKey: ["run", run],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{run}", { params: { path: { run }, query: { strip_bins: 800 } } })),
  });

/** @param numEvents part of the key: another count means that the line has changed. */
export const rugQuery = (run: string, widthPx: number, numEvents: number) =>
  queryOptions({
    queryKey: ["rug", run, widthPx, numEvents],
    queryFn: () =>
      unwrap(api.GET("/api/v1/runs/{run}/rug", { params: { path: { run }, query: { width_px: widthPx } } })),
    placeholderData: keepPreviousData,
  });

export const configQuery = (run: string) =>
  queryOptions({
    queryKey: ["config", run],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{run}/config", { params: { path: { run } } })),
  });

export const panelsQuery = (run: string) =>
  queryOptions({
    queryKey: ["panels", run],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{run}/panels", { params: { path: { run } } })),
  });

export const panelKey = (run: string, panel: string, window: Window) => ["panel", run, panel, window] as const;

export const panelQuery = (run: string, panel: string, window: Window) =>
  queryOptions({
    queryKey: panelKey(run, panel, window),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/runs/{run}/panels/{panel}", {
          params: { path: { run, panel }, query: windowQuery(window) },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });

export const panelTableQuery = (run: string, panel: string, window: Window) =>
  queryOptions({
    queryKey: ["panel-table", run, panel, window],
    queryFn: () =>
      unwrap(
        api.GET("/api/v1/runs/{run}/panels/{panel}/table", {
          params: { path: { run, panel }, query: windowQuery(window) },
        }),
      ),
    staleTime: 0,
  });

/** What the layers of a stretch are; which of them is looked at is nothing to the tree. */
export type LayersPart = Pick<Window, "x" | "first" | "last" | "stat">;

export const layersKey = (run: string) => ["layers", run] as const;

export const layersQuery = (run: string, { x, first, last, stat }: LayersPart) =>
  queryOptions({
    queryKey: [...layersKey(run), x, first, last, stat],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/runs/{run}/layers", {
          params: { path: { run }, query: { x, stat, ...ends(first, last) } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });

/** @param steps first and last step, or null for the whole run. */
export const eventsQuery = (run: string, kinds: string[], newestFirst: boolean, steps: [number, number] | null) =>
  infiniteQueryOptions({
    queryKey: ["events", run, kinds, newestFirst, steps],
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET("/api/v1/runs/{run}/events", {
          params: {
            path: { run },
            query: {
              newest_first: newestFirst,
              limit: 100,
              ...(kinds.length > 0 && { kind: kinds }),
              ...(steps && { first_step: steps[0], last_step: steps[1] }),
              ...(pageParam && { cursor: pageParam }),
            },
          },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page) => page.next_cursor,
    placeholderData: keepPreviousData,
  });

/** A window as query keys: what is not set is left to the server. */
function windowQuery({ first, last, step, ...rest }: Window) {
  return { ...rest, ...ends(first, last), ...(step != null && { step }) };
}

function ends(first: Window["first"], last: Window["last"]) {
  return { ...(first != null && { first }), ...(last != null && { last }) };
}
