/** Overview: what is the case in words, the zoom strip with every event under it, and the grid of panels. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { MOST_LINES, RunAlertLines, useRunAlerts } from "../alerts/RunAlerts";
import { panelsQuery } from "../api/queries";
import type { Chip, RunSummary, Strip, Window } from "../api/types";
import { BaselineLine } from "../compare/CompareWith";
import { layersAddress } from "../layers/address";
import { LAYERS_SECTION } from "../layers/panels";
import { formatTime } from "../lib/format";
import { OF_RANKS } from "../ranks/panels";
import { laneRanges } from "../strip/lanes";
import { ZoomStrip } from "../strip/ZoomStrip";
import { Icon, SEVERITY_ICON } from "../ui/icons";
import { EmptyState, FailedState, Loading, SentencePiece } from "../ui/states";
import { useLineKeys, useStretchKeys, ViewControls } from "./controls";
import { EventRug } from "./EventRug";
import { RunPanels } from "./RunPanels";
import { fromSteps, setRange, toSteps, useView } from "./view";

interface OverviewProps {
  summary: RunSummary;
  strip: Strip | null;
  underflow: Strip | null;
  window: Window;
  numEvents: number;
  onVisible: (panel: string, visible: boolean) => void;
}

export function OverviewTab(props: OverviewProps) {
  const { summary } = props;
  return (
    <>
      <Sentence summary={summary} />
      <BaselineLine run={summary} />
      {summary.last_step === null ? (
        <EmptyState title="Waiting for the first step">
          <p title={formatTime(summary.created_us).utc}>
            Attached since {formatTime(summary.created_us).text}. The charts begin with the first step of the optimizer.
          </p>
        </EmptyState>
      ) : (
        <Charts {...props} />
      )}
    </>
  );
}

/** Where a piece of the sentence leads, if it is about a page of its own. */
function chipTarget(run: string, chip: Chip): string | undefined {
  if (chip.anchor === "layers") return layersAddress(run, { layer: chip.code ? chip.text : undefined });
  return chip.anchor === "events" ? `/runs/${run}/events` : undefined;
}

function Sentence({ summary }: { summary: RunSummary }) {
  const alerts = useRunAlerts(summary.id);
  // What fires says the same with more: the verdict's reasons take the lines that are left.
  const reasons = summary.health.reasons.slice(0, Math.max(0, MOST_LINES - alerts.length));
  return (
    <div className="verdict">
      <p className="sentence" data-testid="sentence">
        {summary.sentence.map((chip, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: pieces have no identity but their place
          <SentencePiece key={at} chip={chip} to={chipTarget(summary.id, chip)} />
        ))}
      </p>
      <RunAlertLines alerts={alerts} />
      {reasons.length > 0 && (
        <ul className="reasons">
          {reasons.map((reason) => (
            <li key={reason} className={`severity-${summary.health.severity}`}>
              <Icon name={SEVERITY_ICON[summary.health.severity]} />
              <span>{reason}</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

function Charts({ summary, strip, underflow, window, numEvents, onVisible }: OverviewProps) {
  const view = useView();
  const { data: list, error, refetch } = useQuery(panelsQuery(summary.id));
  const clock = strip?.clock ?? [];
  const steps = toSteps(view, clock);
  const zoomToSteps = (range: [number, number] | null) => setRange(fromSteps(view.x, range, clock));
  const ranges = useMemo(() => (strip ? laneRanges(strip, underflow) : []), [strip, underflow]);
  useStretchKeys({ view, strip, steps, ranges, zoom: zoomToSteps });
  useLineKeys(view);
  return (
    <>
      {strip && (
        <section className="strip-block" aria-label="Health of every step">
          <ZoomStrip run={summary.id} strip={strip} underflow={underflow} range={steps} onRange={zoomToSteps} />
          <EventRug run={summary.id} strip={strip} numEvents={numEvents} />
        </section>
      )}
      <ViewControls view={view} strip={strip} />
      {error && !list && <FailedState error={error} onRetry={refetch} />}
      {!error && !list && <Loading what="the charts" />}
      {list && (
        <RunPanels
          run={summary.id}
          panels={list.panels.filter(({ section }) => section !== LAYERS_SECTION && !OF_RANKS.includes(section))}
          window={window}
          onVisible={onVisible}
        />
      )}
    </>
  );
}
