/** Ranks: what is the case with them in words, each in a table, where they part, where NaN and Inf began, the buckets; and one
 * of them against all others. */

import { useQuery } from "@tanstack/react-query";
import { panelsQuery, ranksQuery } from "../api/queries";
import type { RanksReport, RunSummary, Strip, Window } from "../api/types";
import { formatCount } from "../lib/format";
import { useLineKeys, ViewControls } from "../run/controls";
import { RunPanels } from "../run/RunPanels";
import { useView } from "../run/view";
import { Icon } from "../ui/icons";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { Agreements } from "./Agreements";
import { OneRank } from "./OneRank";
import { Buckets, Origins } from "./Origins";
import { ONE_RANK_SECTION, RANKS_SECTION } from "./panels";
import { RankCharts } from "./RankCharts";
import { RankTable } from "./RankTable";

const ROLE_ICON = { healthy: "check", unhealthy: "warning", failed: "critical", unknown: "unknown" } as const;
const ROLE_SEVERITY = { healthy: "ok", unhealthy: "warning", failed: "critical", unknown: "info" } as const;

interface RanksProps {
  summary: RunSummary;
  strip: Strip | null;
  window: Window;
  onVisible: (panel: string, visible: boolean) => void;
}

export function RanksTab({ summary, strip, window, onVisible }: RanksProps) {
  const { data: report, error, refetch } = useQuery(ranksQuery(summary.id));
  if (error && !report) return <FailedState error={error} onRetry={refetch} />;
  if (!report) return <Loading what="the ranks" />;
  if (report.world_size < 2) {
    return (
      <EmptyState title="One process">
        <p>This run has one rank. Trainings of several processes, as torchrun starts them, have a page here.</p>
      </EmptyState>
    );
  }
  const shared = { summary, report, strip, window, onVisible };
  return (
    <div className="ranks">
      <Head report={report} />
      {window.rank != null && (
        <>
          <OneRank
            run={summary.id}
            rank={window.rank}
            row={report.ranks.find(({ rank }) => rank === window.rank) ?? null}
            step={window.step ?? null}
            lastStep={summary.last_step ?? 0}
          />
          <Charts {...shared} section={ONE_RANK_SECTION} />
        </>
      )}
      <RankTable rows={report.ranks} chosen={window.rank ?? null} />
      <Agreements report={report} lastStep={summary.last_step ?? 0} />
      <Origins run={summary.id} report={report} />
      <Buckets run={summary.id} report={report} />
      {window.rank == null && <Charts {...shared} section={RANKS_SECTION} />}
    </div>
  );
}

function Head({ report }: { report: RanksReport }) {
  const missing = report.world_size - report.num_seen;
  return (
    <div className="verdict">
      <p className={`ranks-sentence severity-${ROLE_SEVERITY[report.role]}`} data-testid="ranks-sentence">
        <Icon name={ROLE_ICON[report.role]} />
        <span>{report.sentence}</span>
      </p>
      {missing > 0 && (
        <p className="muted" role="status">
          {formatCount(report.num_seen)} of {formatCount(report.world_size)} ranks have been seen. The others appear
          when their first records come.
        </p>
      )}
    </div>
  );
}

function Charts({ section, report, ...shown }: RanksProps & { section: string; report: RanksReport }) {
  const { summary, strip, window, onVisible } = shown;
  const view = useView();
  const { data: list, error, refetch } = useQuery(panelsQuery(summary.id));
  useLineKeys(view);
  if (error && !list) return <FailedState error={error} onRetry={refetch} />;
  if (!list) return <Loading what="the charts" />;
  const panels = list.panels.filter((panel) => panel.section === section);
  if (panels.length === 0) return <p className="muted">The charts come with the first steps.</p>;
  return (
    <>
      <ViewControls view={view} strip={strip} />
      {section === RANKS_SECTION ? (
        <RankCharts {...shown} report={report} panels={panels} />
      ) : (
        <RunPanels run={summary.id} panels={panels} window={window} onVisible={onVisible} />
      )}
    </>
  );
}
