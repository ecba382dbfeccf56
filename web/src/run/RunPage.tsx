/** The frame of one run: header with verdict and actions, tabs, live subscription; and what is shown once it is deleted. */

import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { LinkedAlert } from "../alerts/RunAlerts";
import { ApiError, type DeletedRun, UNREACHABLE } from "../api/client";
import { deletedKey, liveRunKey, useLiveData, useWatch } from "../api/live-provider";
import { runQuery } from "../api/queries";
import type { LiveRun, RunSummary, Window } from "../api/types";
import { useVisiblePanels } from "../chart/PanelCard";
import { CompareWith } from "../compare/CompareWith";
import { TopBarContent } from "../frame/top-bar";
import { LayersTab } from "../layers/LayersTab";
import { formatTime } from "../lib/format";
import { usePhone, useTitle } from "../lib/hooks";
import { useKeys } from "../lib/keys";
import { Link, navigate, setQuery, usePlace } from "../lib/router";
import { RanksTab } from "../ranks/RanksTab";
import { EmptyState, FailedState, HealthWord, Loading, PrecisionChip } from "../ui/states";
import { Announcer } from "./Announcer";
import { ConfigTab } from "./ConfigTab";
import { EventsTab } from "./EventsTab";
import { LivePill, useStepsSincePaused } from "./LivePill";
import { OverviewTab } from "./OverviewTab";
import { RunMenu } from "./RunMenu";
import { setRange, toLayersWindow, toWindow, useView } from "./view";

const TABS = [
  { id: "", title: "Overview" },
  { id: "layers", title: "Layers" },
  { id: "events", title: "Events" },
  { id: "ranks", title: "Ranks" },
  { id: "config", title: "Config" },
] as const;

/** Of runs of one process there is nothing to tell apart. */
const tabsOf = ({ world_size }: RunSummary) => TABS.filter(({ id }) => id !== "ranks" || world_size > 1);

type TabId = (typeof TABS)[number]["id"];

/** Width that the server thins lines to; one figure for all charts, so that viewers share its work. */
const CHART_PX = { desktop: 1000, phone: 400 };
/** On the Layers page the tree takes its part. */
const LAYERS_PX = { desktop: 640, phone: 340 };
const STRIP_BINS = { desktop: 1000, phone: 350 };

export function RunPage({ run, tab }: { run: string; tab: string }) {
  const phone = usePhone();
  const view = useView();
  const size = phone ? "phone" : "desktop";
  const current = TABS.find(({ id }) => id === tab) ?? TABS[0];
  // Rows of the layer tree that are in sight, told by the Layers page.
  const [rows, setRows] = useState<string[]>([]);
  const window = useMemo(() => {
    if (current.id === "ranks") {
      // A step is looked at with its rank; charts of all ranks know none.
      return { ...toWindow(view, CHART_PX[size]), rank: view.rank, step: view.rank === null ? null : view.step };
    }
    if (current.id !== "layers") return toWindow(view, CHART_PX[size]);
    return toLayersWindow(toWindow(view, LAYERS_PX[size]), view, rows);
  }, [view, size, current.id, rows]);
  const visible = useVisiblePanels();
  useWatch({
    type: "watch_run",
    run,
    panels: ["", "layers", "ranks"].includes(current.id) ? visible.panels : [],
    window,
    strip_bins: STRIP_BINS[size],
    events: true,
    ranks: current.id === "ranks",
  });

  const { data: summary, error, refetch } = useQuery(runQuery(run));
  const live = useLiveData<LiveRun>(liveRunKey(run));
  const deletedNow = useLiveData<DeletedRun>(deletedKey(run));
  const deleted = deletedNow ?? (error instanceof ApiError ? error.deleted : null);
  useTitle(deleted?.name ?? summary?.name ?? "");

  if (deleted) return <DeletedState deleted={deleted} />;
  if (!summary) {
    if (!error) return <Loading what="the run" />;
    if (error instanceof ApiError && error.status === 404) return <MissingState run={run} />;
    // The banner of the frame already says that the server is away.
    return error instanceof ApiError && error.code === UNREACHABLE ? (
      <Loading what="the run" />
    ) : (
      <FailedState error={error} onRetry={refetch} />
    );
  }
  return (
    <LoadedRun
      summary={summary}
      live={live}
      tab={current.id}
      window={window}
      onVisible={visible.onVisible}
      onRows={setRows}
    />
  );
}

interface LoadedRunProps {
  summary: RunSummary;
  live: LiveRun | null;
  tab: TabId;
  window: Window;
  onVisible: (panel: string, visible: boolean) => void;
  onRows: (rows: string[]) => void;
}

function LoadedRun({ summary, live, tab, window, onVisible, onRows }: LoadedRunProps) {
  const { path, query } = usePlace();
  const strip = live?.strip ?? summary.strip;
  const underflow = (live ? live.underflow : summary.underflow) ?? null;
  const lastStep = summary.last_step ?? 0;
  const newSteps = useStepsSincePaused(lastStep, window.first !== null);
  const base = `/runs/${summary.id}`;
  // The view travels along: whoever looks at a stretch and goes to its events comes back to the same stretch.
  const search = query.size > 0 ? `?${query.toString()}` : "";
  const tabs = tabsOf(summary);
  const goTo = (index: number) => {
    const target = tabs[index];
    if (target) navigate(`${target.id ? `${base}/${target.id}` : base}${search}`);
  };
  const toggleLive = () => {
    if (window.first !== null) setQuery({ r: null });
    else if (strip && summary.last_step !== null && window.x === "step")
      setRange([strip.first_step, Math.max(strip.first_step + 1, lastStep)]);
  };
  const tabKeys = Object.fromEntries(tabs.map((_, index) => [String(index + 1), () => goTo(index)]));
  const [isComparing, setIsComparing] = useState(false);
  useKeys({ ...tabKeys, l: toggleLive, c: () => setIsComparing(true) });

  return (
    <div className="run">
      <TopBarContent
        crumbs={[
          { text: "Runs", to: "/" },
          { text: summary.project, to: `/?project=${encodeURIComponent(summary.project)}` },
          { text: summary.name },
        ]}
        pill={<LivePill summary={summary} live={live} newSteps={newSteps} onToggle={toggleLive} />}
      />
      <Announcer summary={summary} />
      {summary.demo && <DemoBanner />}
      <header className="run-head">
        <HealthWord health={summary.health} />
        <h1 className="run-name" title={summary.name}>
          {summary.name}
        </h1>
        <PrecisionChip text={summary.precision} role={summary.precision_role} />
        {summary.tags.length > 0 && (
          <ul className="tags" aria-label="Tags">
            {summary.tags.map((tag) => (
              <li key={tag} className="tag">
                {tag}
              </li>
            ))}
          </ul>
        )}
        <RunMenu summary={summary} afterDelete={() => navigate("/")} />
      </header>
      <nav className="tabs" aria-label="Run">
        {tabs.map(({ id, title }) => {
          const to = id ? `${base}/${id}` : base;
          return (
            <Link key={id} to={`${to}${search}`} className="tab" aria-current={path === to ? "page" : undefined}>
              {title}
              {id === "events" && live && live.num_events > 0 && (
                <span className="count">{live.num_events.toLocaleString("en-US")}</span>
              )}
            </Link>
          );
        })}
      </nav>
      {isComparing && <CompareWith run={summary} onClose={() => setIsComparing(false)} />}
      <LinkedAlert run={summary.id} />
      {tab === "" && (
        <OverviewTab
          summary={summary}
          strip={strip}
          underflow={underflow}
          window={window}
          numEvents={live?.num_events ?? 0}
          onVisible={onVisible}
        />
      )}
      {tab === "layers" && (
        <LayersTab
          summary={summary}
          strip={strip}
          underflow={underflow}
          numFrames={live?.num_frames ?? 0}
          window={window}
          onVisible={onVisible}
          onRows={onRows}
        />
      )}
      {tab === "events" && <EventsTab summary={summary} strip={strip} numEvents={live?.num_events ?? null} />}
      {tab === "ranks" && <RanksTab summary={summary} strip={strip} window={window} onVisible={onVisible} />}
      {tab === "config" && <ConfigTab run={summary.id} />}
    </div>
  );
}

export function DemoBanner() {
  return (
    <p className="banner banner-info" role="note">
      Demo on a CPU: numbers are real, speed is not what a GPU gives.
    </p>
  );
}

function DeletedState({ deleted }: { deleted: DeletedRun }) {
  const { text, utc } = formatTime(deleted.deleted_us);
  return (
    <EmptyState title={`The run “${deleted.name}” was deleted`}>
      <p title={utc}>It was deleted on {text}, with all its data.</p>
      <Link to="/" className="button primary">
        Back to Runs
      </Link>
    </EmptyState>
  );
}

function MissingState({ run }: { run: string }) {
  return (
    <EmptyState title="There is no such run">
      <p>
        This server has never seen a run with the id <code>{run}</code>.
      </p>
      <Link to="/" className="button primary">
        Back to Runs
      </Link>
    </EmptyState>
  );
}
