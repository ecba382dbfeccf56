/** Runs beside each other: what is the case in words, whether they may be compared, then every number and picture of it. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { ApiError, type DeletedRun, UNREACHABLE } from "../api/client";
import { deletedKey, useLiveData, useWatch } from "../api/live-provider";
import { comparePanelsQuery, reportQuery, type Source } from "../api/queries";
import type { CompareReport, PanelInfo, SavedComparison, Window } from "../api/types";
import { PanelCard, useVisiblePanels } from "../chart/PanelCard";
import { PanelGrid } from "../chart/PanelGrid";
import { TopBarContent } from "../frame/top-bar";
import { formatTime } from "../lib/format";
import { usePhone, useTitle } from "../lib/hooks";
import { useKeys } from "../lib/keys";
import { Link } from "../lib/router";
import { useLineKeys } from "../run/controls";
import { setRange, toWindow, useView, type View } from "../run/view";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { Actions } from "./Actions";
import { CompareControls, ComparePill } from "./controls";
import { Fairness } from "./Fairness";
import { Layers, useLayerChoice } from "./Layers";
import { MemberChips, withFirst } from "./MemberChips";
import { NumberGrid, OutcomeSign } from "./NumberGrid";
import { RunPicker } from "./RunPicker";
import { Verdicts } from "./Verdicts";
import { type Chosen, setRuns, setStretch } from "./view";

/** Width that the server thins lines to, as on the Overview. */
const CHART_PX = { desktop: 1000, phone: 400 };
/** What the page is about first of all. */
const QUALITY_SECTION = "quality";
/** Panels of the chosen layer, which stand beside the list of layers. */
const LAYER_SECTION = "layer";
const EARLIER = [QUALITY_SECTION, LAYER_SECTION];

interface ComparisonProps {
  chosen: Chosen;
  /** What the address leads to, where it is a saved one. */
  saved: SavedComparison | null;
}

export function Comparison({ chosen, saved }: ComparisonProps) {
  const { runs, options } = chosen;
  const phone = usePhone();
  const view = useView();
  const { data: found, error, refetch } = useQuery({ ...reportQuery(runs, options), enabled: runs.length > 1 });
  // While others are worked out what is there stays, but never as if it were what was asked for.
  const report = found && found.key === runs.join(",") ? found : undefined;
  const layers = useLayerChoice(report, chosen.member, view.layer);
  const visible = useVisiblePanels();
  const window = useMemo<Window>(
    () => ({
      ...toWindow({ ...view, x: "step" }, CHART_PX[phone ? "phone" : "desktop"]),
      layer: layers.layer,
      gradient: view.gradient,
      step: view.step,
      stat: view.stat,
    }),
    [view, phone, layers.layer],
  );
  useWatch(runs.length > 1 ? { type: "watch_compare", runs, panels: visible.panels, window, options } : null);
  const deleted = useDeletedMember(runs, error);
  const title = saved?.name ?? report?.members.map(({ name }) => name).join(" / ");
  useTitle(title ? `${title} · Compare` : "Compare");
  const bar = (
    <TopBarContent
      crumbs={title ? [{ text: "Compare", to: "/compare" }, { text: title }] : [{ text: "Compare" }]}
      pill={report && <ComparePill report={report} isZoomed={view.range !== null} />}
    />
  );

  if (deleted) {
    return (
      <>
        {bar}
        <DeletedMember deleted={deleted} others={runs.filter((run) => run !== deleted.run)} />
      </>
    );
  }
  if (runs.length < 2) {
    return (
      <>
        {bar}
        {runs[0] === undefined ? <NoneLeft saved={saved} /> : <OneRun run={runs[0]} />}
      </>
    );
  }
  if (!report) {
    return (
      <>
        {bar}
        {error && !(error instanceof ApiError && error.code === UNREACHABLE) ? (
          <Refused error={error} onRetry={refetch} />
        ) : (
          <Loading what="the comparison" />
        )}
      </>
    );
  }
  return (
    <div className="compare">
      {bar}
      <Report
        report={report}
        chosen={chosen}
        saved={saved}
        window={window}
        layers={layers}
        onVisible={visible.onVisible}
      />
    </div>
  );
}

interface ReportProps extends ComparisonProps {
  report: CompareReport;
  window: Window;
  layers: ReturnType<typeof useLayerChoice>;
  onVisible: (panel: string, visible: boolean) => void;
}

function Report({ report, chosen, saved, window, layers, onVisible }: ReportProps) {
  const { runs, options } = chosen;
  const view = useView();
  const phone = usePhone();
  const source = useMemo<Source>(() => ({ kind: "comparison", runs, options }), [runs, options]);
  const { data: list, error, refetch } = useQuery(comparePanelsQuery(runs, options));
  useLineKeys(view);
  useKeys({
    b: () => {
      const focused = document.activeElement?.closest<HTMLElement>("[data-run]")?.dataset.run;
      const next = focused && runs.includes(focused) ? focused : layers.member;
      if (next && next !== runs[0]) setRuns(withFirst(runs, next));
    },
    "0": () => setRange(null),
  });
  const panels = list?.panels ?? [];
  // The report may still be the one before: the charts are what was asked for.
  const align = options.align ?? report.options.align ?? "attempts";
  const onZoom = (range: View["range"]) => setStretch(range, align);
  const shared = { source, window, onVisible, onZoom };
  const draw = (info: PanelInfo) => <PanelCard key={info.id} {...shared} info={info} isStacked />;
  return (
    <>
      <h1 className="sr-only">Compare {report.members.map(({ name }) => name).join(", ")}</h1>
      <header className="compare-head">
        <div className="compare-head-line">
          <MemberChips members={report.members} />
          <Actions report={report} chosen={chosen} saved={saved} />
        </div>
        <p
          className={
            report.verdicts.length > 1 ? "verdict-text compare-verdict clamped" : "verdict-text compare-verdict"
          }
          data-testid="compare-verdict"
          role="status"
        >
          <OutcomeSign outcome={report.outcome} /> {report.sentence}
        </p>
      </header>
      {saved && <GoneRuns saved={saved} />}
      <Verdicts report={report} />
      <Fairness fairness={report.fairness} members={report.members} />
      <CompareControls report={report} view={view} />
      {error && !list && <FailedState error={error} onRetry={refetch} />}
      <PanelGrid panels={panels.filter(({ section }) => section === QUALITY_SECTION)} phone={phone}>
        {draw}
      </PanelGrid>
      <h2 className="section-title">Numbers</h2>
      <NumberGrid report={report} />
      <Layers
        report={report}
        choice={layers}
        isOverlaid={chosen.isOverlaid}
        panels={panels.filter(({ section }) => section === LAYER_SECTION)}
        shared={shared}
      />
      <PanelGrid panels={panels.filter(({ section }) => !EARLIER.includes(section))} phone={phone} isTitled>
        {draw}
      </PanelGrid>
    </>
  );
}

/** A member that is gone: told live, or by the answer to what was asked. */
function useDeletedMember(runs: readonly string[], error: Error | null): DeletedRun | null {
  const told = useLiveData<DeletedRun>(deletedKey(runs.join(",")));
  const asked = error instanceof ApiError ? error.deleted : null;
  return [told, asked].find((deleted) => deleted && runs.includes(deleted.run)) ?? null;
}

function DeletedMember({ deleted, others }: { deleted: DeletedRun; others: readonly string[] }) {
  const { text, utc } = formatTime(deleted.deleted_us);
  return (
    <EmptyState title={`The run “${deleted.name}” was deleted`}>
      <p title={utc}>It was deleted on {text}, with all its data: it cannot be compared any more.</p>
      {others.length > 0 && (
        <button type="button" className="button primary" onClick={() => setRuns(others)}>
          Go on without it
        </button>
      )}
      <Link to="/compare" className="button">
        Back to Compare
      </Link>
    </EmptyState>
  );
}

/** Of what was saved, what is there no more: the others are compared without it. */
function GoneRuns({ saved }: { saved: SavedComparison }) {
  const gone = saved.runs.flatMap(({ name, is_deleted }, at) =>
    is_deleted ? [at === 0 ? `${name} (the baseline)` : name] : [],
  );
  if (gone.length === 0) return null;
  return (
    <p className="muted gone-runs" data-testid="gone-runs">
      Compared without {gone.join(", ")}: deleted since this was saved.
    </p>
  );
}

function NoneLeft({ saved }: { saved: SavedComparison | null }) {
  return (
    <EmptyState title="All runs of this comparison were deleted">
      {saved && <p>It held {saved.runs.map(({ name }) => name).join(", ")}.</p>}
      <Link to="/compare" className="button primary">
        Back to Compare
      </Link>
    </EmptyState>
  );
}

function OneRun({ run }: { run: string }) {
  const [isPicking, setIsPicking] = useState(false);
  return (
    <EmptyState title="One run alone compares with nothing">
      <p>Choose another one to hold beside it.</p>
      <button type="button" className="button primary" onClick={() => setIsPicking(true)}>
        Choose a run
      </button>
      {isPicking && (
        <RunPicker
          title="Compare with"
          run={run}
          present={[run]}
          onPick={(picked) => setRuns([picked.id, run])}
          onClose={() => setIsPicking(false)}
        />
      )}
    </EmptyState>
  );
}

/** What the server will not compare, in its words. */
function Refused({ error, onRetry }: { error: Error; onRetry: () => void }) {
  const isFinal = error instanceof ApiError && error.status >= 400 && error.status < 500;
  if (!isFinal) return <FailedState error={error} onRetry={onRetry} />;
  return (
    <EmptyState title="These runs cannot be compared">
      <p>{error.message}</p>
      <Link to="/compare" className="button primary">
        Back to Compare
      </Link>
    </EmptyState>
  );
}
