/** Whether what is shown is the newest: Live, Paused, Catching up, Reconnecting, or how the run ended. */

import { useEffect, useRef } from "react";
import { useLive } from "../api/live-provider";
import type { LiveRun, RunSummary } from "../api/types";
import { formatCount, formatSpan } from "../lib/format";
import { useNow } from "../lib/hooks";
import { Icon } from "../ui/icons";

/** Steps that came since the view was paused; null while it follows. */
export function useStepsSincePaused(lastStep: number, paused: boolean): number | null {
  const pausedAt = useRef<number | null>(null);
  useEffect(() => {
    pausedAt.current = paused ? (pausedAt.current ?? lastStep) : null;
  }, [paused, lastStep]);
  return paused ? lastStep - (pausedAt.current ?? lastStep) : null;
}

interface LivePillProps {
  summary: RunSummary;
  live: LiveRun | null;
  /** Steps that came since it was paused; null while it follows. */
  newSteps: number | null;
  onToggle: () => void;
}

export function LivePill({ summary, live, newSteps, onToggle }: LivePillProps) {
  const { connection, client } = useLive();
  if (connection.kind === "lost")
    return <ReconnectingPill retryAtMs={connection.retryAtMs} onRetry={() => client.retryNow()} />;
  const isOver = summary.state !== "live" && summary.state !== "waiting";
  if (newSteps !== null) return <PausedPill isOver={isOver} newSteps={newSteps} onResume={onToggle} />;
  if (isOver) {
    return (
      <span className="pill" data-testid="live-pill">
        {summary.state_text}
      </span>
    );
  }
  const behindS = live?.catching_up_s ?? null;
  const ahead = live?.ahead ?? null;
  if (behindS !== null || ahead !== null) {
    const left = behindS === null ? "" : `, ${formatSpan(behindS)} left`;
    return (
      <span className="pill" data-testid="live-pill">
        <Icon name="waiting" />
        {`Catching up${left}${ahead === null ? "" : `; now at ${ahead}`}`}
      </span>
    );
  }
  return (
    <button type="button" className="pill pill-button" onClick={onToggle} title="Pause (l)" data-testid="live-pill">
      <Icon name="live" />
      {connection.kind === "open" ? summary.state_text || "Live" : "Connecting"}
    </button>
  );
}

/** Of a stretch that is looked at while steps go on, or went on, elsewhere. */
export function PausedPill({
  isOver,
  newSteps,
  onResume,
}: {
  isOver: boolean;
  newSteps: number;
  onResume: () => void;
}) {
  const what = isOver
    ? "Zoomed: show all"
    : newSteps > 0
      ? `Paused, ${formatCount(newSteps)} new steps: resume`
      : "Paused: resume";
  return (
    <button type="button" className="pill pill-button" onClick={onResume} data-testid="live-pill">
      <Icon name={isOver ? "search" : "play"} />
      {what}
    </button>
  );
}

/** Of pages that show more than one run: they cannot be paused. */
export function ListPill() {
  const { connection, client } = useLive();
  if (connection.kind === "lost")
    return <ReconnectingPill retryAtMs={connection.retryAtMs} onRetry={() => client.retryNow()} />;
  return (
    <span className="pill" data-testid="live-pill">
      <Icon name="live" />
      {connection.kind === "open" ? "Live" : "Connecting"}
    </span>
  );
}

export function ReconnectingPill({ retryAtMs, onRetry }: { retryAtMs: number; onRetry: () => void }) {
  const now = useNow(500);
  const seconds = Math.max(0, Math.ceil((retryAtMs - now) / 1000));
  return (
    <button
      type="button"
      className="pill pill-button pill-warning"
      onClick={onRetry}
      title="Try now"
      data-testid="live-pill"
    >
      <Icon name="warning" />
      Reconnecting ({seconds} s)
    </button>
  );
}
