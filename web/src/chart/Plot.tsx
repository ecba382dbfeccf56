/** One Plotly chart: loaded lazily, redrawn with Plotly.react, its zoom and crosshair shared with the page. */

import type { PlotlyHTMLElement } from "plotly.js";
import { useEffect, useMemo, useRef, useState } from "react";
import type { ChartBand } from "../alerts/bands";
import type { PanelFigure } from "../api/types";
import { useMedia } from "../lib/hooks";
import { usePalette } from "../lib/theme";
import { setCrosshair, useCrosshair } from "./crosshair";
import { drawSoon, forget } from "./drawing";
import { axisValue, buildFigure } from "./figure";

type Plotly = typeof import("plotly.js");

let loading: Promise<Plotly> | null = null;

/** Plotly, or null while it cannot be had: a server that is away is asked again with the next picture. */
function loadPlotly(): Promise<Plotly | null> {
  loading ??= import("plotly.js-cartesian-dist-min").then((module) => module.default);
  return loading.catch(() => {
    loading = null;
    return null;
  });
}

/** What Plotly computes and keeps on its element; the part that places the crosshair. */
interface Drawn extends PlotlyHTMLElement {
  _fullLayout?: { xaxis: DrawnAxis; yaxis: DrawnAxis };
}

interface DrawnAxis {
  _offset: number;
  _length: number;
  d2p(value: number | string): number;
  p2d(px: number): number | string;
}

/** A place that was clicked, in the units of the chart's main axes. */
export interface ChartPoint {
  x: number | string;
  y: number | string;
}

/** A press that moves further than this is a drag. */
const CLICK_PX = 4;

const CONFIG = { displayModeBar: false, doubleClick: false, showTips: false, displaylogo: false } as const;

interface PlotProps {
  figure: PanelFigure;
  height: number;
  x: "step" | "time";
  windowKey: string;
  utcOffsetMin: number;
  bands: readonly ChartBand[];
  /** Null: the whole run. */
  onZoom: (range: [number, number] | null) => void;
  /** Told where the chart was clicked: anywhere inside its axes, whether or not something is drawn there. */
  onPick?: ((point: ChartPoint) => void) | undefined;
}

export function Plot({ figure, height, x, windowKey, utcOffsetMin, bands, onZoom, onPick }: PlotProps) {
  const element = useRef<HTMLDivElement>(null);
  const palette = usePalette();
  const canDrag = useMedia("(pointer: fine)");
  const [plotly, setPlotly] = useState<Plotly | null>(null);
  const drawing = useRef<Promise<unknown>>(Promise.resolve());
  const built = useMemo(
    () => buildFigure(figure, palette, { windowKey, canDrag, bands }),
    [figure, palette, windowKey, canDrag, bands],
  );
  const panel = figure.info.id;
  const handlers = useRef<Handled>({ onZoom, onPick, x, utcOffsetMin });
  handlers.current = { onZoom, onPick, x, utcOffsetMin };

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new picture is the occasion to ask again
  useEffect(() => {
    if (plotly) return;
    let stale = false;
    loadPlotly().then((loaded) => !stale && setPlotly(() => loaded));
    return () => {
      stale = true;
    };
  }, [plotly, built]);

  useEffect(() => {
    const target = element.current as Drawn | null;
    if (!plotly || !target) return;
    drawSoon(target, () => {
      const first = !target._fullLayout;
      drawing.current = plotly.react(target, built.data, { ...built.layout, height }, CONFIG).then(() => {
        if (first && target.isConnected) listen(target, panel, handlers);
      });
    });
  }, [plotly, built, height, panel]);

  useEffect(() => {
    const target = element.current as Drawn | null;
    if (!plotly || !target) return;
    const observer = new ResizeObserver(() => {
      if (target._fullLayout && target.clientWidth > 0) plotly.Plots.resize(target);
    });
    observer.observe(target);
    return () => {
      observer.disconnect();
      forget(target);
      // Taken away while Plotly still draws, it would go on with what is no longer there.
      const purge = () => target.isConnected || plotly.purge(target);
      drawing.current.then(purge, purge);
    };
  }, [plotly]);

  return (
    <div className={onPick ? "plot plot-pickable" : "plot"} style={{ height }}>
      <div ref={element} className="plot-canvas" />
      <CrosshairLine chart={element} panel={panel} />
    </div>
  );
}

type Handled = Pick<PlotProps, "onZoom" | "onPick" | "x" | "utcOffsetMin">;
type Handlers = { current: Handled };

function listen(target: Drawn, panel: string, handlers: Handlers): void {
  target.on("plotly_relayout", (change) => {
    const { onZoom, x, utcOffsetMin } = handlers.current;
    const changes = change as Record<string, unknown>;
    if (changes["xaxis.autorange"]) return onZoom(null);
    const from = axisValue(changes["xaxis.range[0]"], x, utcOffsetMin);
    const to = axisValue(changes["xaxis.range[1]"], x, utcOffsetMin);
    if (from !== null && to !== null && to > from) onZoom([from, to]);
  });
  target.on("plotly_doubleclick", () => handlers.current.onZoom(null));
  target.on("plotly_hover", ({ points }) => {
    const at = points[0]?.x;
    if (typeof at === "number" || typeof at === "string") setCrosshair({ source: panel, x: at });
  });
  target.on("plotly_unhover", () => setCrosshair(null));
  // Plotly's own click tells only places that have a value, and lays a cover over the page while a button is down.
  target.addEventListener(
    "pointerdown",
    (down) => {
      const area = (down.target as Element).closest(".nsewdrag");
      if (!area || down.button !== 0 || !handlers.current.onPick) return;
      const onUp = (up: PointerEvent) => {
        const layout = target._fullLayout;
        if (!layout || Math.hypot(up.clientX - down.clientX, up.clientY - down.clientY) > CLICK_PX) return;
        const box = target.getBoundingClientRect();
        handlers.current.onPick?.({
          x: layout.xaxis.p2d(down.clientX - box.left - layout.xaxis._offset),
          y: layout.yaxis.p2d(down.clientY - box.top - layout.yaxis._offset),
        });
      };
      addEventListener("pointerup", onUp, { once: true });
      addEventListener("pointercancel", () => removeEventListener("pointerup", onUp), { once: true });
    },
    { capture: true },
  );
}

function CrosshairLine({ chart, panel }: { chart: { current: HTMLDivElement | null }; panel: string }) {
  const crosshair = useCrosshair();
  const layout = (chart.current as Drawn | null)?._fullLayout;
  if (!crosshair || crosshair.source === panel || !layout) return null;
  const { xaxis, yaxis } = layout;
  const at = xaxis.d2p(crosshair.x);
  if (!(at >= 0 && at <= xaxis._length)) return null;
  return (
    <div
      className="crosshair"
      style={{ left: xaxis._offset + at, top: yaxis._offset, height: yaxis._length }}
      aria-hidden="true"
    />
  );
}
