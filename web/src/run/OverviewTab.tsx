/** Overview: what is the case in words, the zoom strip with every event under it, and the grid of panels. */

import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useId } from "react";
import { panelsQuery } from "../api/queries";
import type { PanelInfo, RunSummary, Strip, Window } from "../api/types";
import { PanelCard } from "../chart/PanelCard";
import { formatTime } from "../lib/format";
import { usePhone } from "../lib/hooks";
import { useKeys } from "../lib/keys";
import { around, ZoomStrip } from "../strip/ZoomStrip";
import { Icon, SEVERITY_ICON } from "../ui/icons";
import { EmptyState, FailedState, Loading, SentencePiece } from "../ui/states";
import { EventRug } from "./EventRug";
import { fromSteps, SMOOTHINGS, setRange, setSmooth, setX, setY, toSteps, useView, type View, Y_AXES } from "./view";

interface OverviewProps {
  summary: RunSummary;
  strip: Strip | null;
  window: Window;
  numEvents: number;
  onVisible: (panel: string, visible: boolean) => void;
}

export function OverviewTab({ summary, strip, window, numEvents, onVisible }: OverviewProps) {
  return (
    <>
      <Sentence summary={summary} />
      {summary.last_step === null ? (
        <EmptyState title="Waiting for the first step">
          <p title={formatTime(summary.created_us).utc}>
            Attached since {formatTime(summary.created_us).text}. The charts begin with the first step of the optimizer.
          </p>
        </EmptyState>
      ) : (
        <Charts summary={summary} strip={strip} window={window} numEvents={numEvents} onVisible={onVisible} />
      )}
    </>
  );
}

function Sentence({ summary }: { summary: RunSummary }) {
  return (
    <div className="verdict">
      <p className="sentence" data-testid="sentence">
        {summary.sentence.map((chip, at) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: pieces have no identity but their place
          <SentencePiece key={at} chip={chip} />
        ))}
      </p>
      {summary.health.reasons.length > 0 && (
        <ul className="reasons">
          {summary.health.reasons.slice(0, 3).map((reason) => (
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

function Charts({ summary, strip, window, numEvents, onVisible }: OverviewProps) {
  const view = useView();
  const phone = usePhone();
  const { data: list, error, refetch } = useQuery(panelsQuery(summary.id));
  const clock = strip?.clock ?? [];
  const steps = toSteps(view, clock);
  const zoomToSteps = (range: [number, number] | null) => setRange(fromSteps(view.x, range, clock));
  useViewKeys(view, strip, steps, zoomToSteps);
  return (
    <>
      {strip && (
        <section className="strip-block" aria-label="Health of every step">
          <ZoomStrip strip={strip} range={steps} onRange={zoomToSteps} />
          <EventRug run={summary.id} strip={strip} numEvents={numEvents} />
        </section>
      )}
      <ViewControls view={view} strip={strip} />
      {error && !list && <FailedState error={error} onRetry={refetch} />}
      {!error && !list && <Loading what="the charts" />}
      {list && (
        <PanelGrid panels={list.panels} phone={phone}>
          {(info) => (
            <PanelCard
              key={info.id}
              run={summary.id}
              info={info}
              window={window}
              onVisible={onVisible}
              onZoom={setRange}
            />
          )}
        </PanelGrid>
      )}
    </>
  );
}

function useViewKeys(
  view: View,
  strip: Strip | null,
  steps: [number, number] | null,
  zoom: (range: [number, number] | null) => void,
) {
  const goToBad = (direction: 1 | -1) => {
    if (!strip) return;
    const middle = steps ? (steps[0] + steps[1]) / 2 : direction > 0 ? -1 : Number.POSITIVE_INFINITY;
    const candidates = strip.ranges.filter((range) =>
      direction > 0 ? range.first_step > middle : range.last_step < middle,
    );
    const next = direction > 0 ? candidates[0] : candidates.at(-1);
    if (next) zoom(around(strip, next.first_step, next.last_step));
  };
  const smoothAt = SMOOTHINGS.findIndex(({ value }) => value === view.smooth);
  const yAt = Y_AXES.findIndex(({ value }) => value === view.y);
  useKeys({
    "[": () => goToBad(-1),
    "]": () => goToBad(1),
    "0": () => zoom(null),
    y: () => setY(Y_AXES[(yAt + 1) % Y_AXES.length]?.value ?? "auto"),
    t: () => setX(view, view.x === "step" ? "time" : "step", strip?.clock ?? []),
    s: () => setSmooth(SMOOTHINGS[(smoothAt + 1) % SMOOTHINGS.length]?.value ?? 0),
  });
}

function ViewControls({ view, strip }: { view: View; strip: Strip | null }) {
  return (
    <div className="view-controls">
      <Choice
        label="Horizontal axis"
        value={view.x}
        options={[
          { value: "step", text: "Step" },
          { value: "time", text: "Time" },
        ]}
        onChange={(x) => setX(view, x, strip?.clock ?? [])}
      />
      <Choice label="Vertical axis" value={view.y} options={Y_AXES} onChange={setY} />
      <Choice label="Smoothing" value={view.smooth} options={SMOOTHINGS} onChange={setSmooth} />
      {view.range && (
        <button type="button" className="button" onClick={() => setRange(null)}>
          Show whole run
        </button>
      )}
    </div>
  );
}

interface ChoiceProps<T extends string | number> {
  label: string;
  value: T;
  options: readonly { value: T; text: string }[];
  onChange: (value: T) => void;
}

/** One of a few, as radio buttons that look like one bar. */
function Choice<T extends string | number>({ label, value, options, onChange }: ChoiceProps<T>) {
  const name = useId();
  return (
    <fieldset className="choice">
      <legend>{label}</legend>
      <div className="choice-bar">
        {options.map((option) => (
          <label key={option.value}>
            <input type="radio" name={name} checked={option.value === value} onChange={() => onChange(option.value)} />
            <span>{option.text}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

/** Panels by section, in the server's order; on a phone the lesser ones are folded away. */
function PanelGrid({
  panels,
  phone,
  children,
}: {
  panels: PanelInfo[];
  phone: boolean;
  children: (info: PanelInfo) => ReactNode;
}) {
  const sections = new Map<string, PanelInfo[]>();
  for (const panel of [...panels].sort((a, b) => a.order - b.order)) {
    sections.set(panel.section, [...(sections.get(panel.section) ?? []), panel]);
  }
  return [...sections].map(([section, infos]) => {
    const folded = phone ? infos.filter((info) => info.folded_on_phone) : [];
    const open = infos.filter((info) => !folded.includes(info));
    const title = section.charAt(0).toUpperCase() + section.slice(1);
    return (
      <section key={section} aria-label={title}>
        {section !== panels[0]?.section && <h2 className="section-title">{title}</h2>}
        {open.length > 0 && <div className="grid">{open.map(children)}</div>}
        {folded.map((info) => (
          <details key={info.id} className="folded">
            <summary>{info.title}</summary>
            {children(info)}
          </details>
        ))}
      </section>
    );
  });
}
