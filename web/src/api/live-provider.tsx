/** Brings live messages into the query cache, where the pages read them like any other answer. */

import { type QueryClient, skipToken, useQuery, useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useMemo, useState } from "react";
import { receiveAlerts } from "../alerts/queries";
import { websocketAddress } from "../lib/base";
import { type DeletedRun, isSignedOut } from "./client";
import { type Connection, LiveClient } from "./live";
import { keyOf, panelKey, ranksQuery, reportQuery, type Source, serverQuery } from "./queries";
import type { ClientMessage, CompareOptions, LiveError, LiveRun, PanelFigure, ServerMessage, Window } from "./types";

interface Live {
  connection: Connection;
  client: LiveClient;
}

const LiveContext = createContext<Live | null>(null);

/** What a live message about a run leaves in the cache beside its summary. */
export const liveRunKey = (run: string) => ["live-run", run] as const;
export const deletedKey = (run: string) => ["deleted", run] as const;
/** @param source see `keyOf`. */
export const panelErrorKey = (source: string, panel: string) => ["panel-error", source, panel] as const;

/** Whose panels come in while this is watched. */
function sourceOf(watched: ClientMessage | null): Source | null {
  switch (watched?.type) {
    case "watch_run":
      return { kind: "run", run: watched.run };
    case "watch_compare":
      return { kind: "comparison", runs: watched.runs, options: watched.options as CompareOptions };
    default:
      return null;
  }
}

export function receive(cache: QueryClient, message: ServerMessage, watched: ClientMessage | null): void {
  const source = sourceOf(watched);
  switch (message.type) {
    case "runs":
      cache.setQueryData(["runs"], message.list);
      break;
    case "run":
      cache.setQueryData(["run", message.summary.id], message.summary);
      cache.setQueryData<LiveRun>(liveRunKey(message.summary.id), message);
      break;
    case "ranks":
      cache.setQueryData(ranksQuery(message.run).queryKey, message.report);
      break;
    case "panels":
      for (const fill of message.fills) {
        // Of what was looked at before nothing is kept.
        if (!source || !watched || !("window" in watched) || fill.run !== keyOf(source)) continue;
        cache.setQueryData(panelErrorKey(fill.run, fill.panel), null);
        const key = panelKey(source, fill.panel, watched.window as Window);
        const figure = cache.getQueryData<PanelFigure>(key);
        if (figure && figure.fill.skeleton_id === fill.skeleton_id) cache.setQueryData(key, { ...figure, fill });
        // A fill that fits no skeleton we have: fetch the panel whole.
        else cache.invalidateQueries({ queryKey: key });
      }
      break;
    case "compare":
      if (source?.kind === "comparison" && message.report.key === keyOf(source)) {
        cache.setQueryData(reportQuery(source.runs, source.options).queryKey, message.report);
      }
      break;
    case "alerts":
      receiveAlerts(cache, message);
      break;
    case "deleted":
      cache.setQueryData<DeletedRun>(deletedKey(message.run), message);
      // A comparison ends with any of its runs.
      if (source?.kind === "comparison") cache.setQueryData<DeletedRun>(deletedKey(keyOf(source)), message);
      break;
    case "error":
      if (message.panel && source) {
        cache.setQueryData<LiveError>(panelErrorKey(keyOf(source), message.panel), message);
      } else {
        console.warn(`halfscope live: ${message.detail} (${message.code}, request ${message.request_id})`);
      }
      break;
  }
}

export function LiveProvider({ children, onSignedOut }: { children: ReactNode; onSignedOut: () => void }) {
  const cache = useQueryClient();
  const [connection, setConnection] = useState<Connection>({ kind: "connecting" });
  const client = useMemo(
    () =>
      new LiveClient(websocketAddress("/api/v1/live"), {
        onSignedOut,
        onMessage: (message) => receive(cache, message, watchedNow.get(cache) ?? null),
        onConnection: (next) => {
          setConnection(next);
          // A refused websocket does not say why: ask over HTTP whether the session is what is missing.
          if (next.kind === "lost") {
            cache.fetchQuery({ ...serverQuery, staleTime: 0, retry: false }).catch((error: unknown) => {
              if (isSignedOut(error)) onSignedOut();
            });
          }
        },
      }),
    [cache, onSignedOut],
  );
  useEffect(() => {
    client.start();
    return () => client.stop();
  }, [client]);
  const live = useMemo(() => ({ connection, client }), [connection, client]);
  return <LiveContext value={live}>{children}</LiveContext>;
}

/** What each cache's page is subscribed to at the moment, to know which window a fill was made for. */
const watchedNow = new WeakMap<QueryClient, ClientMessage | null>();

export function useLive(): Live {
  const live = useContext(LiveContext);
  if (!live) throw new Error("useLive outside of LiveProvider");
  return live;
}

/** Something that only live messages put into the cache. */
export function useLiveData<T>(queryKey: readonly unknown[]): T | null {
  return useQuery<T | null>({ queryKey, queryFn: skipToken, initialData: null }).data ?? null;
}

/** Subscribes while mounted. Hidden pages unsubscribe: nobody looks, and the server need not compute. */
export function useWatch(message: ClientMessage | null): void {
  const { client } = useLive();
  const cache = useQueryClient();
  const text = message && JSON.stringify(message);
  useEffect(() => {
    const wanted = text ? (JSON.parse(text) as ClientMessage) : null;
    const apply = () => {
      const now = document.visibilityState === "hidden" ? null : wanted;
      watchedNow.set(cache, now);
      client.watch(now);
    };
    apply();
    document.addEventListener("visibilitychange", apply);
    return () => document.removeEventListener("visibilitychange", apply);
  }, [client, cache, text]);
  useEffect(
    () => () => {
      watchedNow.set(cache, null);
      client.watch(null);
    },
    [client, cache],
  );
}
