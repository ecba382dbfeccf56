/** Runs: every training that was seen here, live ones first. */

import { useQuery } from "@tanstack/react-query";
import { ApiError, UNREACHABLE } from "../api/client";
import { useWatch } from "../api/live-provider";
import { runsQuery, serverQuery } from "../api/queries";
import type { RunList } from "../api/types";
import { TopBarContent } from "../frame/top-bar";
import { formatCount } from "../lib/format";
import { usePhone, useTitle } from "../lib/hooks";
import { usePlace } from "../lib/router";
import { ListPill } from "../run/LivePill";
import { DemoBanner } from "../run/RunPage";
import { CopyButton } from "../ui/copy";
import { Icon } from "../ui/icons";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { applyFilters, clearFilters, isFiltered, parseFilters } from "./filters";
import { RunCards } from "./RunCards";
import { RunsTable } from "./RunsTable";
import { Toolbar } from "./Toolbar";

export function RunsPage() {
  useWatch({ type: "watch_runs" });
  useTitle("Runs");
  const { data: list, error, refetch } = useQuery(runsQuery);
  return (
    <>
      <TopBarContent crumbs={[{ text: "Runs" }]} pill={<ListPill />} />
      <h1 className="sr-only">Runs</h1>
      {list ? (
        list.total === 0 ? (
          <NoRuns />
        ) : (
          <Runs list={list} />
        )
      ) : error && !(error instanceof ApiError && error.code === UNREACHABLE) ? (
        <FailedState error={error} onRetry={refetch} />
      ) : (
        <Loading what="the runs" />
      )}
    </>
  );
}

function Runs({ list }: { list: RunList }) {
  const { query } = usePlace();
  const phone = usePhone();
  const filters = parseFilters(query);
  const runs = applyFilters(list.runs, filters);
  const sort = query.get("sort") ?? "";
  return (
    <>
      {list.runs.some(({ demo }) => demo) && <DemoBanner />}
      <Toolbar list={list} filters={filters} />
      {isFiltered(filters) && (
        <p className="muted filter-count" role="status">
          {formatCount(runs.length)} of {formatCount(list.total)}
          <button type="button" className="link-button" onClick={clearFilters}>
            clear
          </button>
        </p>
      )}
      {runs.length > 0 && (phone ? <RunCards runs={runs} sort={sort} /> : <RunsTable runs={runs} sort={sort} />)}
    </>
  );
}

/** Nothing was ever recorded: how to begin. Gives way to the table by itself when the first run arrives. */
function NoRuns() {
  const { data: server } = useQuery(serverQuery);
  return (
    <EmptyState title="No runs yet">
      <p>Add these lines to a training loop. The run appears here with its first step.</p>
      {server && (
        <>
          <pre className="snippet">
            <code>{server.snippet}</code>
          </pre>
          <CopyButton text={server.snippet} label="Copy" />
        </>
      )}
      <p className="waiting" role="status">
        <Icon name="waiting" />
        Waiting for the first step
      </p>
    </EmptyState>
  );
}
