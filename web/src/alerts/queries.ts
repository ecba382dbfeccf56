/** What the alert pages ask the server for. Live messages say when an answer has become old; see `receiveAlerts`. */

import {
  infiniteQueryOptions,
  keepPreviousData,
  type QueryClient,
  queryOptions,
  useMutation,
  useQueryClient,
} from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import type { AlertItem, AlertList, ChannelBody, Rule, ServerMessage, SilenceBody } from "../api/types";
import { tellNews } from "./news";

type LiveAlerts = Extract<ServerMessage, { type: "alerts" }>;

/** Begins the key of every list of alerts. */
const ALERTS = ["alerts"] as const;
export const RULES = ["rules"] as const;
const CHANNELS = ["channels"] as const;
const SILENCES = ["silences"] as const;
/** Of those that held when a live message last came; asked for by nobody. */
const SILENCE_IDS = ["silence-ids"] as const;
const bandsKey = (run: string) => ["alert-bands", run] as const;

/** What needs a person: what fires, for a value or for want of data, and rules that cannot be judged. */
const FIRING_STATES = ["firing", "no_data", "error"] as const;
const MOST_FIRING = 200;

export const firingQuery = queryOptions({
  queryKey: [...ALERTS, "firing"],
  queryFn: () =>
    unwrap(api.GET("/api/v1/alerts", { params: { query: { state: [...FIRING_STATES], limit: MOST_FIRING } } })),
});

/** Of one run; most runs have none. */
export const runFiringQuery = (run: string) =>
  queryOptions({
    queryKey: [...ALERTS, "run", run],
    queryFn: () =>
      unwrap(api.GET("/api/v1/alerts", { params: { query: { state: [...FIRING_STATES], run, limit: 50 } } })),
  });

export const countsQuery = queryOptions({
  queryKey: ["alert-counts"],
  queryFn: async () =>
    (await unwrap(api.GET("/api/v1/alerts", { params: { query: { state: ["firing"], limit: 1 } } }))).counts,
});

export interface HistoryFilter {
  run: string;
  rule: string;
}

export const historyQuery = ({ run, rule }: HistoryFilter) =>
  infiniteQueryOptions({
    queryKey: [...ALERTS, "history", run, rule],
    queryFn: ({ pageParam }) =>
      unwrap(
        api.GET("/api/v1/alerts", {
          params: {
            query: {
              state: [...FIRING_STATES, "resolved"],
              limit: 50,
              ...(run && { run }),
              ...(rule && { rule }),
              ...(pageParam && { before: pageParam }),
            },
          },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (page: AlertList) => page.next_cursor,
    placeholderData: keepPreviousData,
  });

export const alertQuery = (alert: string) =>
  queryOptions({
    queryKey: [...ALERTS, "one", alert],
    queryFn: () => unwrap(api.GET("/api/v1/alerts/{alert}", { params: { path: { alert } } })),
  });

export const bandsQuery = (run: string) =>
  queryOptions({
    queryKey: bandsKey(run),
    queryFn: () => unwrap(api.GET("/api/v1/runs/{run}/alerts", { params: { path: { run } } })),
  });

export const silencesQuery = queryOptions({
  queryKey: SILENCES,
  queryFn: () => unwrap(api.GET("/api/v1/silences")),
});

export const rulesQuery = queryOptions({
  queryKey: RULES,
  queryFn: () => unwrap(api.GET("/api/v1/rules")),
});

export const presetsQuery = queryOptions({
  queryKey: [...RULES, "presets"],
  queryFn: () => unwrap(api.GET("/api/v1/rules/presets")),
});

export const vocabularyQuery = queryOptions({
  queryKey: ["rule-vocabulary"],
  queryFn: () => unwrap(api.GET("/api/v1/rules/vocabulary")),
});

/** When a rule would have fired; the one before stands in while the next is worked out. */
export const backtestQuery = (rule: Rule, runs: string[], widthPx: number) =>
  queryOptions({
    queryKey: ["backtest", rule, runs, widthPx],
    queryFn: ({ signal }) =>
      unwrap(api.POST("/api/v1/rules/backtest", { body: { rule, runs, width_px: widthPx }, signal })),
    placeholderData: keepPreviousData,
    gcTime: 60_000,
  });

export const checkQuery = (rule: Rule) =>
  queryOptions({
    queryKey: ["rule-check", rule],
    queryFn: ({ signal }) => unwrap(api.POST("/api/v1/rules/check", { body: { ...rule }, signal })),
    placeholderData: keepPreviousData,
    gcTime: 60_000,
  });

export const channelsQuery = queryOptions({
  queryKey: CHANNELS,
  queryFn: () => unwrap(api.GET("/api/v1/channels")),
});

/** A live message: the bell's numbers at once, lists again where something in them changed. */
export function receiveAlerts(cache: QueryClient, { counts, silences, changed }: LiveAlerts): void {
  const differs = (key: readonly unknown[], now: unknown) => {
    const before = cache.getQueryData(key);
    return before !== undefined && JSON.stringify(before) !== JSON.stringify(now);
  };
  const isOld = differs(countsQuery.queryKey, counts);
  const areSilencesOld = differs(SILENCE_IDS, silences);
  cache.setQueryData(countsQuery.queryKey, counts);
  cache.setQueryData(SILENCE_IDS, silences);
  if (areSilencesOld) cache.invalidateQueries({ queryKey: SILENCES });
  if (changed.length === 0 && !isOld && !areSilencesOld) return;
  cache.invalidateQueries({ queryKey: ALERTS });
  cache.invalidateQueries({ queryKey: RULES, exact: true });
  for (const run of new Set(changed.map((alert) => alert.run))) cache.invalidateQueries({ queryKey: bandsKey(run) });
  tellNews(changed);
}

/** Puts a changed alert where lists read it, without waiting for the live message. */
function replaceAlert(cache: QueryClient, alert: AlertItem): void {
  cache.setQueryData<AlertList>(
    firingQuery.queryKey,
    (list) => list && { ...list, alerts: list.alerts.map((old) => (old.id === alert.id ? alert : old)) },
  );
  cache.setQueryData(alertQuery(alert.id).queryKey, alert);
  cache.invalidateQueries({ queryKey: ALERTS });
  cache.invalidateQueries({ queryKey: countsQuery.queryKey });
}

export function useAcknowledge() {
  const cache = useQueryClient();
  return useMutation({
    mutationFn: (alert: string) =>
      unwrap(api.POST("/api/v1/alerts/{alert}/acknowledge", { params: { path: { alert } } })),
    onSuccess: (alert) => replaceAlert(cache, alert),
  });
}

/** A change after which some lists are asked for again. */
function useChange<Given, Answer>(change: (given: Given) => Promise<Answer>, ...keys: (readonly unknown[])[]) {
  const cache = useQueryClient();
  return useMutation({
    mutationFn: change,
    onSuccess: () => Promise.all(keys.map((queryKey) => cache.invalidateQueries({ queryKey }))),
  });
}

export function useSilence() {
  return useChange((body: SilenceBody) => unwrap(api.POST("/api/v1/silences", { body })), SILENCES, ALERTS);
}

export function useLift() {
  return useChange(
    (silence: string) => unwrap(api.DELETE("/api/v1/silences/{silence}", { params: { path: { silence } } })),
    SILENCES,
    ALERTS,
  );
}

/** @property version of the rule that was changed; null for a new one. */
export interface RuleChange {
  rule: Rule;
  version: number | null;
}

export function useSaveRule() {
  return useChange(({ rule, version }: RuleChange) => {
    if (version === null) return unwrap(api.POST("/api/v1/rules", { body: rule }));
    const params = { path: { rule: rule.id }, query: { version } };
    return unwrap(api.PUT("/api/v1/rules/{rule}", { params, body: rule }));
  }, RULES);
}

export function useDeleteRule() {
  return useChange(
    (rule: string) => unwrap(api.DELETE("/api/v1/rules/{rule}", { params: { path: { rule } } })),
    RULES,
    ALERTS,
  );
}

/** Makes rules of presets; an empty list: the recommended ones. */
export function useTakeOver() {
  return useChange((ids: string[]) => unwrap(api.POST("/api/v1/rules/presets", { body: { ids } })), RULES);
}

export function useImport() {
  return useChange(
    ({ text, dryRun }: { text: string; dryRun: boolean }) =>
      unwrap(api.POST("/api/v1/rules/yaml", { params: { query: { dry_run: dryRun } }, body: { text } })),
    RULES,
  );
}

/** @property id null for a new channel. */
export function useSaveChannel() {
  return useChange(
    ({ id, body }: { id: string | null; body: ChannelBody }) =>
      id === null
        ? unwrap(api.POST("/api/v1/channels", { body }))
        : unwrap(api.PUT("/api/v1/channels/{channel}", { params: { path: { channel: id } }, body })),
    CHANNELS,
  );
}

export function useDeleteChannel() {
  return useChange(
    (channel: string) => unwrap(api.DELETE("/api/v1/channels/{channel}", { params: { path: { channel } } })),
    CHANNELS,
  );
}

export function useTestChannel() {
  return useChange(
    (channel: string) => unwrap(api.POST("/api/v1/channels/{channel}/test", { params: { path: { channel } } })),
    CHANNELS,
  );
}
