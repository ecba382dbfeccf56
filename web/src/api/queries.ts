/** Everything the pages ask the server for, with the cache keys that live messages write to. */

import { infiniteQueryOptions, keepPreviousData, QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiError, api, UNREACHABLE, unwrap } from "./client";
import type { CompareOptions, RankRow, Window } from "./types";

/** An answer that will not change by asking again. */
function isFinal(error: Error): boolean {
  return error instanceof ApiError && error.status >= 400 && error.status < 500;
}

function isAway(error: Error): boolean {
  return error instanceof ApiError && error.code === UNREACHABLE;
}

/** Between two tries. */
const MOST_DELAY_MS = 3200;

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
        // While the server is away what was asked for stays asked for, and what is on the page stays there.
        retry: (count, error) => isAway(error) || (count < 2 && !isFinal(error)),
        retryDelay: (count) => Math.min(400 * 2 ** count, MOST_DELAY_MS),
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

/** What is said of a run's ranks. */
export const ranksQuery = (run: string) =>
  queryOptions({
    queryKey: ["ranks", run],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/runs/{run}/ranks", { params: { path: { run } }, signal })),
  });

export const panelsQuery = (run: string) =>
  queryOptions({
    queryKey: ["panels", run],
    queryFn: () => unwrap(api.GET("/api/v1/runs/{run}/panels", { params: { path: { run } } })),
  });

/** Whose panels: those of one run, or of runs beside each other. */
export type Source =
  | { kind: "run"; run: string }
  /** The baseline first. */
  | { kind: "comparison"; runs: readonly string[]; options: CompareOptions };

export const ofRun = (run: string): Source => ({ kind: "run", run });

/** What the server calls it: the `run` of its panels' fills. */
export const keyOf = (source: Source): string => (source.kind === "run" ? source.run : source.runs.join(","));

export const panelKey = (source: Source, panel: string, window: Window) =>
  ["panel", keyOf(source), panel, window, source.kind === "run" ? null : source.options] as const;

export const panelQuery = (source: Source, panel: string, window: Window) =>
  queryOptions({
    queryKey: panelKey(source, panel, window),
    queryFn: ({ signal }) =>
      source.kind === "run"
        ? unwrap(
            api.GET("/api/v1/runs/{run}/panels/{panel}", {
              params: { path: { run: source.run, panel }, query: windowQuery(window) },
              signal,
            }),
          )
        : unwrap(
            api.GET("/api/v1/compare/panels/{panel}", {
              params: { path: { panel }, query: { ...compareQuery(source), ...windowQuery(window) } },
              signal,
            }),
          ),
    placeholderData: keepPreviousData,
  });

export const panelTableQuery = (source: Source, panel: string, window: Window) =>
  queryOptions({
    queryKey: ["panel-table", ...panelKey(source, panel, window)],
    queryFn: () =>
      source.kind === "run"
        ? unwrap(
            api.GET("/api/v1/runs/{run}/panels/{panel}/table", {
              params: { path: { run: source.run, panel }, query: windowQuery(window) },
            }),
          )
        : unwrap(
            api.GET("/api/v1/compare/panels/{panel}/table", {
              params: { path: { panel }, query: { ...compareQuery(source), ...windowQuery(window) } },
            }),
          ),
    staleTime: 0,
  });

/** A comparison as query keys. */
export function compareQuery({ runs, options }: Pick<Source & { kind: "comparison" }, "runs" | "options">) {
  return { runs: runs.join(","), ...options };
}

export const reportQuery = (runs: readonly string[], options: CompareOptions) =>
  queryOptions({
    queryKey: ["compare", runs, options],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/compare", { params: { query: compareQuery({ runs, options }) }, signal })),
    placeholderData: keepPreviousData,
  });

export const comparePanelsQuery = (runs: readonly string[], options: CompareOptions) =>
  queryOptions({
    queryKey: ["compare-panels", runs, options],
    queryFn: () => unwrap(api.GET("/api/v1/compare/panels", { params: { query: compareQuery({ runs, options }) } })),
    placeholderData: keepPreviousData,
  });

/** Runs that a run may be compared with, the nearest first. */
export const candidatesQuery = (run: string, search: string) =>
  queryOptions({
    queryKey: ["candidates", run, search],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/runs/{run}/candidates", { params: { path: { run }, query: { search } }, signal })),
    placeholderData: keepPreviousData,
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

/** A rank's newest events; asked for anew when its row says that there may be more.
 *
 * @param steps as in `eventsQuery`.
 */
export const rankEventsQuery = (run: string, row: RankRow, steps: [number, number] | null) =>
  queryOptions({
    queryKey: ["rank-events", run, row.rank, row.state, row.num_nonfinite, row.num_skipped, steps],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/runs/{run}/events", {
          params: { path: { run }, query: { rank: row.rank, newest_first: true, limit: 5, ...within(steps) } },
          signal,
        }),
      ),
    placeholderData: keepPreviousData,
  });

const within = (steps: [number, number] | null) => steps && { first_step: steps[0], last_step: steps[1] };

/** @param steps first and last step, or null for the whole run.
 * @param rank null: of all. */
export const eventsQuery = (
  run: string,
  kinds: string[],
  newestFirst: boolean,
  steps: [number, number] | null,
  rank: number | null,
) =>
  infiniteQueryOptions({
    queryKey: ["events", run, kinds, newestFirst, steps, rank],
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET("/api/v1/runs/{run}/events", {
          params: {
            path: { run },
            query: {
              newest_first: newestFirst,
              limit: 100,
              ...(kinds.length > 0 && { kind: kinds }),
              ...within(steps),
              ...(rank !== null && { rank }),
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
function windowQuery({ first, last, step, rank, ...rest }: Window) {
  return { ...rest, ...ends(first, last), ...(step != null && { step }), ...(rank != null && { rank }) };
}

function ends(first: Window["first"], last: Window["last"]) {
  return { ...(first != null && { first }), ...(last != null && { last }) };
}
