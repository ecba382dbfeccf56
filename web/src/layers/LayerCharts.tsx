/** The three charts of the Layers page: all layers over the steps, one layer's exponents over the steps, one step of it. */

import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect } from "react";
import { ofRun, panelQuery, panelTableQuery } from "../api/queries";
import type { LayerTree, PanelInfo, RunSummary, Strip, Window } from "../api/types";
import { axisValue } from "../chart/figure";
import { NumberTable, PanelCard } from "../chart/PanelCard";
import type { ChartPoint } from "../chart/Plot";
import { useKeys } from "../lib/keys";
import { WholeRunButton, XAxisChoice } from "../run/controls";
import { setRange, stepAt, useView } from "../run/view";
import { Choice } from "../ui/choice";
import { HEATMAP, HISTOGRAM, LAYERS_SECTION, WINDOW } from "./panels";
import { setGradient, setLayer, setStat, setStep } from "./selection";
import { columnPlaces, neighbour } from "./steps";

interface LayerChartsProps {
  run: RunSummary;
  panels: PanelInfo[];
  window: Window;
  tree: LayerTree;
  strip: Strip | null;
  onVisible: (panel: string, visible: boolean) => void;
}

export function LayerCharts({ run, panels, window, tree, strip, onVisible }: LayerChartsProps) {
  const view = useView();
  // The former picture stands in until the next is there: its columns are the same, and keys can be held down.
  const { data: figure } = useQuery({ ...panelQuery(ofRun(run.id), WINDOW, window), enabled: false });
  const clock = strip?.clock ?? [];
  const own = tree.default_gradient;
  const gradient = view.gradient === "auto" ? own : view.gradient;
  useKeys({ u: () => setGradient(gradient === "seen" ? "true" : "seen", own) });

  /** A place on the x axis of a chart as a step. */
  const toStep = (x: ChartPoint["x"]): number | null => {
    const place = axisValue(x, window.x, window.utc_offset_min);
    return place === null ? null : stepAt(view.x, place, clock);
  };
  const pickStep = ({ x }: ChartPoint) => {
    const step = toStep(x);
    if (step !== null) setStep(step);
  };
  const pickCell = (point: ChartPoint) => {
    const name = rowName(point.y, window.rows);
    if (name !== null) setLayer(name);
    pickStep(point);
  };
  const onKey = (event: KeyboardEvent) => {
    const direction = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (direction === 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    const steps = columnPlaces(figure, window.x, window.utc_offset_min).map((place) => stepAt(view.x, place, clock));
    const next = neighbour(
      steps.filter((step) => step !== null),
      view.step,
      direction,
    );
    if (next === null) return;
    event.preventDefault();
    setStep(next);
  };

  const shared = { source: ofRun(run.id), window, onVisible, onZoom: setRange };
  const here = panels.filter(({ section }) => section === LAYERS_SECTION).sort((a, b) => a.order - b.order);
  return (
    <>
      <div className="view-controls">
        <Choice
          label="Statistic"
          value={view.stat}
          options={tree.stats.map(({ id, title, text }) => ({ value: id, text: title, title: text }))}
          onChange={setStat}
        />
        <XAxisChoice view={view} strip={strip} />
        <WholeRunButton view={view} />
      </div>
      <p className="layers-note muted">{tree.stats.find(({ id }) => id === view.stat)?.text}</p>
      <div className="grid">
        {here.map((info) => {
          switch (info.id) {
            case HEATMAP:
              return <PanelCard key={info.id} {...shared} info={fitRows(info, window.rows.length)} onPick={pickCell} />;
            case WINDOW:
              return (
                <PanelCard
                  key={info.id}
                  {...shared}
                  info={info}
                  onPick={pickStep}
                  onKey={onKey}
                  layer={view.layer || tree.default_layer}
                  isStacked
                  fills
                  actions={
                    <Choice
                      label="Gradient"
                      value={gradient}
                      options={GRADIENTS}
                      onChange={(next) => setGradient(next, own)}
                    />
                  }
                />
              );
            case HISTOGRAM:
              return (
                <PanelCard
                  key={info.id}
                  {...shared}
                  info={info}
                  hasTable={false}
                  isStacked
                  actions={<StepReset step={view.step} />}
                >
                  <Numbers run={run.id} window={window} />
                </PanelCard>
              );
            default:
              return <PanelCard key={info.id} {...shared} info={info} />;
          }
        })}
      </div>
    </>
  );
}

/** A row as high as its label needs, for as many as fit on a page; beyond that the rows get thinner. */
const ROW_PX = 17;
const AROUND_ROWS_PX = 84;
const HEIGHTS_PX = { least: 200, most: 640 };

function fitRows(info: PanelInfo, numRows: number): PanelInfo {
  const wanted = numRows * ROW_PX + AROUND_ROWS_PX;
  return { ...info, height_px: Math.min(HEIGHTS_PX.most, Math.max(HEIGHTS_PX.least, wanted)) };
}

const GRADIENTS = [
  { value: "seen", text: "As FP16 sees it", title: "The gradient times the loss scale (u)" },
  { value: "true", text: "True gradient", title: "Without the loss scale (u)" },
] as const;

/** The row that was clicked: rows are numbered from the top of the list, or named. */
function rowName(y: ChartPoint["y"], rows: string[]): string | null {
  if (typeof y === "string") return rows.includes(y) ? y : null;
  return rows[Math.round(y)] ?? null;
}

export function StepReset({ step }: { step: number | null }) {
  if (step === null) return <span className="muted panel-note">newest step</span>;
  return (
    <button type="button" className="link-button" onClick={() => setStep(null)}>
      show newest
    </button>
  );
}

/** The numbers of the step that the histogram shows, beside it at all times. */
function Numbers({ run, window }: { run: string; window: Window }) {
  const { data: figure } = useQuery({ ...panelQuery(ofRun(run), HISTOGRAM, window), enabled: false });
  const { data: table, refetch } = useQuery(panelTableQuery(ofRun(run), HISTOGRAM, window));
  const fill = figure?.fill;
  // A new picture means new numbers.
  useEffect(() => {
    if (fill) refetch();
  }, [fill, refetch]);
  if (!table || table.rows.length === 0) return null;
  return (
    <div className="panel-numbers" data-testid="histogram-numbers">
      <NumberTable table={table} />
      {table.note && <p className="muted">{table.note}</p>}
    </div>
  );
}
