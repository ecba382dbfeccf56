/** One rank: where it runs, how it fares, and what it told around the step that is looked at. */

import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { rankEventsQuery } from "../api/queries";
import type { RankRow } from "../api/types";
import { formatBytes, formatCount, formatShare } from "../lib/format";
import { useKeys } from "../lib/keys";
import { Link, setQuery } from "../lib/router";
import { FailedState, Loading } from "../ui/states";
import { formatSeconds, placeOf, STATES } from "./RankTable";

interface OneRankProps {
  run: string;
  rank: number;
  /** Null: it has sent nothing. */
  row: RankRow | null;
  /** What is looked at; null: the whole run. */
  step: number | null;
  lastStep: number;
}

function showAll() {
  setQuery({ rank: null, step: null });
}

export function OneRank({ run, rank, row, step, lastStep }: OneRankProps) {
  const title = useRef<HTMLHeadingElement>(null);
  useKeys({ Escape: showAll });
  // Whoever came from a chart far below is to see what it led to.
  // biome-ignore lint/correctness/useExhaustiveDependencies: another rank is the occasion
  useEffect(() => {
    title.current?.focus({ preventScroll: true });
    title.current?.scrollIntoView({ block: "nearest" });
  }, [rank]);
  return (
    <section className="one-rank" aria-labelledby="one-rank-title">
      <h2 className="title" id="one-rank-title" ref={title} tabIndex={-1}>
        Rank {formatCount(rank)}
        {row && <span className="muted"> · {placeOf(row)}</span>}
      </h2>
      <button type="button" className="button" onClick={showAll}>
        All ranks
      </button>
      {row ? <Facts row={row} /> : <p className="muted">Nothing has come of this rank.</p>}
      {row && <RankEvents run={run} row={row} step={step} lastStep={lastStep} />}
      {row && (
        <p className="muted">
          The line is this rank's, the band behind it that of all others.
          {step !== null && ` The dotted line is step ${formatCount(step)}.`}
        </p>
      )}
    </section>
  );
}

function Facts({ row }: { row: RankRow }) {
  const { text, severity } = STATES[row.state];
  const facts = [
    row.last_step != null && `step ${formatCount(row.last_step)}`,
    row.num_behind > 0 && `${formatCount(row.num_behind)} behind`,
    row.step_s != null && `${formatSeconds(row.step_s)} a step`,
    row.busy_s != null && `${formatSeconds(row.busy_s)} busy`,
    row.wait_share != null && `waits ${formatShare(row.wait_share)}`,
    row.num_nonfinite > 0 &&
      `${formatCount(row.num_nonfinite)} NaN/Inf steps from ${formatCount(row.first_nonfinite_step)}`,
    row.memory_bytes != null && formatBytes(row.memory_bytes),
  ].filter(Boolean);
  return (
    <p>
      <span className={`severity-${severity}`}>{text}</span>
      {facts.map((fact) => ` · ${fact}`)}
    </p>
  );
}

/** Around a step is within a hundredth of the run, at least so many steps. */
const LEAST_AROUND = 8;

function RankEvents({ run, row, step, lastStep }: Omit<OneRankProps, "rank" | "row"> & { row: RankRow }) {
  const around = Math.max(LEAST_AROUND, Math.round(lastStep / 100));
  const steps: [number, number] | null = step === null ? null : [Math.max(0, step - around), step + around];
  const { data, error, refetch } = useQuery(rankEventsQuery(run, row, steps));
  if (!data) return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="its events" />;
  const where = steps ? ` in steps ${formatCount(steps[0])}-${formatCount(steps[1])}` : "";
  const all = `/runs/${run}/events?rank=${row.rank}`;
  return (
    <div className="rank-events">
      <p>
        {data.total === 0 ? "No events" : `${formatCount(data.total)} ${data.total === 1 ? "event" : "events"}`}
        {where} · <Link to={all}>all of this rank</Link>
      </p>
      <ol className="origins" data-testid="rank-events">
        {data.events.map((event) => (
          <li key={event.id} className="origin">
            <Link to={`${all}&r=${event.step}-${event.step + 1}`}>step {formatCount(event.step)}</Link>
            <span className={`severity-${event.severity}`}>{event.title}</span>
            <span className="muted">{event.text}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}
