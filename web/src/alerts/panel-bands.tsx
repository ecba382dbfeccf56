/** The alerts of one chart: as bands over it, and as a sign at its head. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { liveRunKey, useLiveData } from "../api/live-provider";
import { runQuery } from "../api/queries";
import type { AlertBand, LiveRun, Window } from "../api/types";
import { formatCount } from "../lib/format";
import { Link, usePlace } from "../lib/router";
import { Icon } from "../ui/icons";
import { type ChartBand, ofLayer, ofPanel, onAxis } from "./bands";
import { bandsQuery } from "./queries";

const NONE: AlertBand[] = [];

function useBands(run: string | null, panel: string, layer: string | undefined): AlertBand[] {
  const { data } = useQuery({ ...bandsQuery(run ?? ""), enabled: run !== null });
  const bands = data?.bands ?? NONE;
  return useMemo(() => (layer === undefined ? ofPanel(bands, panel) : ofLayer(bands, layer)), [bands, panel, layer]);
}

/**
 * @param run null: the chart is of several runs, on which no alert is marked.
 * @param layer undefined: a chart of the whole run.
 */
export function usePanelBands(
  run: string | null,
  panel: string,
  layer: string | undefined,
  window: Window,
): ChartBand[] {
  const bands = useBands(run, panel, layer);
  const { query } = usePlace();
  const marked = query.get("alert") ?? "";
  const live = useLiveData<LiveRun>(liveRunKey(run ?? ""));
  const { data: summary } = useQuery({ ...runQuery(run ?? ""), enabled: false });
  const clock = (live?.strip ?? summary?.strip)?.clock;
  return useMemo(
    () =>
      onAxis(
        bands,
        { x: window.x, utcOffsetMin: window.utc_offset_min, clock: clock ?? [] },
        marked,
        layer !== undefined,
      ),
    [bands, window.x, window.utc_offset_min, clock, marked, layer],
  );
}

const RANKS = { info: 0, warning: 1, critical: 2 } as const;

interface PanelAlertsProps {
  run: string;
  panel: string;
  layer: string | undefined;
}

/** Says in words what the bands say in colour. */
export function PanelAlerts({ run, panel, layer }: PanelAlertsProps) {
  const bands = useBands(run, panel, layer);
  if (bands.length === 0) return null;
  const worst = bands.reduce((a, b) => (RANKS[b.severity] > RANKS[a.severity] ? b : a));
  const firing = bands.filter(({ last_step }) => last_step === null).length;
  const words = `${formatCount(bands.length)} ${bands.length === 1 ? "alert" : "alerts"}${firing > 0 ? `, ${formatCount(firing)} firing` : ""}`;
  return (
    <Link
      to={`/alerts/history?run=${encodeURIComponent(run)}`}
      className={`panel-alerts severity-${worst.severity}`}
      title={bands
        .slice(0, 8)
        .map(({ text }) => text)
        .join("\n")}
    >
      <Icon name={worst.severity} className="small" />
      <span>{words}</span>
    </Link>
  );
}
