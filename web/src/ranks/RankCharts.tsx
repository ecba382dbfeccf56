/** Charts of all ranks over the steps. A cell leads to its rank at that step: by a click, or by arrows and Enter. */

import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useState } from "react";
import { ofRun, panelQuery } from "../api/queries";
import type { PanelInfo, RankRow, RanksReport, RunSummary, Strip, Window } from "../api/types";
import { setCrosshair } from "../chart/crosshair";
import { axisValue } from "../chart/figure";
import { PanelCard } from "../chart/PanelCard";
import { PanelGrid } from "../chart/PanelGrid";
import type { ChartPoint } from "../chart/Plot";
import { formatCompact, formatCount } from "../lib/format";
import { usePhone } from "../lib/hooks";
import { setQuery } from "../lib/router";
import { setRange, stepAt, useView } from "../run/view";
import { type Cell, type Cells, cellAt, cellsOf, moved } from "./cells";
import { isOfRanks } from "./panels";

interface RankChartsProps {
  summary: RunSummary;
  report: RanksReport;
  panels: PanelInfo[];
  strip: Strip | null;
  window: Window;
  onVisible: (panel: string, visible: boolean) => void;
}

export function RankCharts({ summary, report, panels, strip, window, onVisible }: RankChartsProps) {
  const phone = usePhone();
  const shared = { run: summary.id, strip, window, onVisible };
  return (
    <>
      <p className="muted cells-note">
        A click on a cell, or arrows and Enter in a chart, leads to its rank at that step.
      </p>
      <PanelGrid panels={panels} phone={phone}>
        {(info) =>
          isOfRanks(info) ? (
            <RankChart key={info.id} {...shared} info={fitRows(info, report.ranks.length)} ranks={report.ranks} />
          ) : (
            <PanelCard
              key={info.id}
              source={ofRun(summary.id)}
              info={fitRows(info, report.buckets.length)}
              window={window}
              onVisible={onVisible}
              onZoom={setRange}
            />
          )
        }
      </PanelGrid>
    </>
  );
}

/** A row as high as its label needs, for as many as fit; beyond that the rows get thinner. */
const ROW_PX = 17;
const AROUND_ROWS_PX = 60;
const HEIGHTS_PX = { least: 190, most: 380 };

function fitRows(info: PanelInfo, numRows: number): PanelInfo {
  const wanted = numRows * ROW_PX + AROUND_ROWS_PX;
  return { ...info, height_px: Math.min(HEIGHTS_PX.most, Math.max(HEIGHTS_PX.least, wanted)) };
}

interface RankChartProps extends Pick<RankChartsProps, "strip" | "window" | "onVisible"> {
  run: string;
  info: PanelInfo;
  ranks: RankRow[];
}

function RankChart({ run, info, ranks, strip, window, onVisible }: RankChartProps) {
  const view = useView();
  const phone = usePhone();
  const [cursor, setCursor] = useState<Cell | null>(null);
  const { data: figure } = useQuery({ ...panelQuery(ofRun(run), info.id, window), enabled: false });
  const read = () => cellsOf(figure, window.x, window.utc_offset_min);
  const toStep = (place: number) => stepAt(view.x, place, strip?.clock ?? []);

  const open = (cells: Cells, cell: Cell, place: number) => {
    const rank = cells.rankAt(cell);
    const step = toStep(place);
    if (rank !== null) setQuery({ rank: String(rank), step: step === null ? null : String(step) }, { push: true });
  };
  const onPick = (point: ChartPoint) => {
    const cells = read();
    const place = axisValue(point.x, window.x, window.utc_offset_min);
    if (!cells || place === null) return;
    const cell = cellAt(cells, place, Number(point.y));
    // The middle of a step's cell lies half a step behind it.
    open(cells, cell, window.x === "step" ? Math.floor(place) : (cells.places[cell.column] ?? place));
  };
  const leave = () => {
    setCursor(null);
    setCrosshair(null);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const cells = read();
    if (!cells) return;
    if (event.key === "Enter" && cursor) return open(cells, cursor, cells.places[cursor.column] ?? 0);
    const next = moved(cells, cursor, event.key);
    if (!next) return;
    event.preventDefault();
    setCursor(next);
    setCrosshair({ source: "", x: onAxis(cells.places[next.column] ?? 0, window) });
    if (!cursor) event.currentTarget.addEventListener("blur", leave, { once: true });
  };
  return (
    <PanelCard
      source={ofRun(run)}
      info={info}
      window={window}
      onVisible={onVisible}
      onZoom={setRange}
      onPick={onPick}
      onKey={onKey}
      isStacked={phone}
    >
      <p className="cell-words" role="status">
        {cursor && cellWords(read(), cursor, ranks, toStep)}
      </p>
    </PanelCard>
  );
}

/** A place in the units of the URL as Plotly's axis has it: dates are milliseconds of the viewer's wall clock. */
function onAxis(place: number, { x, utc_offset_min }: Window): number {
  return x === "step" ? place : place / 1000 + utc_offset_min * 60_000;
}

function cellWords(cells: Cells | null, cell: Cell, ranks: RankRow[], toStep: (place: number) => number | null) {
  const rank = cells?.rankAt(cell);
  if (!cells || rank == null) return null;
  const host = ranks.find((row) => row.rank === rank)?.host;
  const value = cells.valueAt(cell);
  const where = host ? ` on ${host}` : "";
  const worst = value === null ? "not finite" : `${cells.title} ${formatCompact(value)}`;
  return `rank ${formatCount(rank)}${where}, step ${formatCount(toStep(cells.places[cell.column] ?? 0))}: ${worst}`;
}
