/** Layers: which are in trouble, since when, and what FP16 makes of the gradient of the one that is looked at. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { panelsQuery } from "../api/queries";
import type { LayerTree, RunSummary, Strip, Window } from "../api/types";
import { formatCount } from "../lib/format";
import { usePhone } from "../lib/hooks";
import { useStretchKeys } from "../run/controls";
import { fromSteps, setRange, toSteps, useView } from "../run/view";
import { type LaneRange, laneRanges } from "../strip/lanes";
import { ZoomStrip } from "../strip/ZoomStrip";
import { Icon } from "../ui/icons";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { LayerCharts } from "./LayerCharts";
import { LayerTreeView } from "./LayerTreeView";
import { PhoneLayers } from "./PhoneLayers";
import { setLayer, setStep } from "./selection";
import {
  ancestors,
  countFound,
  heatmapRows,
  indexNodes,
  inTreeOrder,
  openAtFirst,
  type TreeItem,
  visibleRows,
  worstLayers,
} from "./tree";
import { useLayers } from "./useLayers";

interface LayersTabProps {
  summary: RunSummary;
  strip: Strip | null;
  underflow: Strip | null;
  numFrames: number;
  window: Window;
  onVisible: (panel: string, visible: boolean) => void;
  onRows: (rows: string[]) => void;
}

export function LayersTab(props: LayersTabProps) {
  const { summary, strip, underflow, window, numFrames } = props;
  const view = useView();
  const { data: tree, error, refetch } = useLayers(summary.id, window, numFrames);
  const clock = strip?.clock ?? [];
  const steps = toSteps(view, clock);
  const zoom = (range: [number, number] | null) => setRange(fromSteps(view.x, range, clock));
  const ranges = useMemo(() => (strip ? laneRanges(strip, underflow) : []), [strip, underflow]);
  const onBad = (range: LaneRange) => setStep(range.first_step);
  useStretchKeys({ view, strip, steps, ranges, zoom, onBad });

  return (
    <>
      {strip && (
        <section className="strip-block" aria-label="Health of every step">
          <ZoomStrip run={summary.id} strip={strip} underflow={underflow} range={steps} onRange={zoom} />
        </section>
      )}
      {!tree && (error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the layers" />)}
      {tree &&
        (tree.nodes.length === 0 ? (
          <NoLayers tree={tree} zoomed={view.range !== null} />
        ) : (
          <Loaded {...props} tree={tree} />
        ))}
    </>
  );
}

/** Nothing was sketched, here or at all. The server says why and what to do. */
function NoLayers({ tree, zoomed }: { tree: LayerTree; zoomed: boolean }) {
  return (
    <EmptyState title="No layers to show">
      <p>{tree.empty || "No gradient was sketched in these steps."}</p>
      {zoomed && (
        <button type="button" className="button" onClick={() => setRange(null)}>
          Show whole run
        </button>
      )}
    </EmptyState>
  );
}

/** How many layers a phone lists. */
const PHONE_ROWS = 12;

function Loaded({ summary, strip, window, tree, onVisible, onRows }: LayersTabProps & { tree: LayerTree }) {
  const phone = usePhone();
  const view = useView();
  const items = useMemo(() => indexNodes(tree.nodes), [tree]);
  const selected = view.layer || tree.default_layer;
  const browse = useTree(items, view.layer);
  const rows = browse.rows;
  const worst = useMemo(() => worstLayers(items, tree.default_layer, PHONE_ROWS), [items, tree.default_layer]);
  const shown = useMemo(() => (phone ? inTreeOrder(items, worst) : heatmapRows(rows)), [phone, items, worst, rows]);
  const text = shown.join("\n");
  useEffect(() => onRows(text === "" ? [] : text.split("\n")), [onRows, text]);
  const { data: list, error, refetch } = useQuery(panelsQuery(summary.id));

  const charts = list ? (
    // Until the rows are known the charts would be asked for twice.
    (window.rows.length > 0 || rows.length === 0) && (
      <LayerCharts run={summary} strip={strip} panels={list.panels} window={window} tree={tree} onVisible={onVisible} />
    )
  ) : error ? (
    <FailedState error={error} onRetry={refetch} />
  ) : (
    <Loading what="the charts" />
  );
  if (phone) {
    return (
      <PhoneLayers tree={tree} items={items} worst={worst} selected={selected}>
        {charts}
      </PhoneLayers>
    );
  }
  const numFound = countFound(items, browse.search);
  const numLayers = countFound(items, "");
  return (
    <div className="layers">
      <aside className="layers-side" aria-label="Layers">
        <label className="search-box">
          <Icon name="search" className="small" />
          <span className="sr-only">Search layers</span>
          <input
            type="search"
            placeholder="Search layers"
            value={browse.search}
            onChange={(event) => browse.setSearch(event.target.value)}
            onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
          />
        </label>
        <p className="layers-count muted" role="status">
          {browse.search ? `${formatCount(numFound)} of ${formatCount(numLayers)}` : formatCount(numLayers)}
          {numLayers === 1 ? " layer" : " layers"} · worst {tree.stat_title.toLowerCase()}
          {browse.search && (
            <button type="button" className="link-button" onClick={() => browse.setSearch("")}>
              clear
            </button>
          )}
        </p>
        <LayerTreeView tree={tree} rows={rows} selected={selected} onSelect={setLayer} onToggle={browse.toggle} />
      </aside>
      <div className="layers-main">{charts}</div>
    </div>
  );
}

/** Which modules are open, and what is searched for. The layer of the address is always in sight. */
function useTree(items: TreeItem[], layer: string) {
  const [open, setOpen] = useState<ReadonlySet<string>>(() => openAtFirst(items));
  const [search, setSearch] = useState("");
  // biome-ignore lint/correctness/useExhaustiveDependencies: a tree that only changed its numbers opens nothing
  useEffect(() => {
    if (layer) setOpen((before) => new Set([...before, ...ancestors(items, layer)]));
  }, [layer]);
  const toggle = (name: string) =>
    setOpen((before) => {
      const next = new Set(before);
      if (!next.delete(name)) next.add(name);
      return next;
    });
  const rows = useMemo(() => visibleRows(items, open, search), [items, open, search]);
  return { rows, search, setSearch, toggle };
}
