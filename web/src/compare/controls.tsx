/** By what runs are compared and how they are set beside each other, and whether what is shown is the newest. */

import { useLive } from "../api/live-provider";
import type { CompareReport } from "../api/types";
import { formatShare } from "../lib/format";
import { useKeys } from "../lib/keys";
import { PausedPill, ReconnectingPill, useStepsSincePaused } from "../run/LivePill";
import { SMOOTHINGS, setRange, setSmooth, setY, type View, Y_AXES } from "../run/view";
import { Choice } from "../ui/choice";
import { Icon } from "../ui/icons";
import { ALIGNMENTS, setOptions, TOLERANCES } from "./view";

export function CompareControls({ report, view }: { report: CompareReport; view: View }) {
  const { metric = "", align = "attempts", tolerance_share: tolerance = 0 } = report.options;
  const metrics = [...new Set([...report.metrics, metric])];
  const tolerances = [...new Set<number>([...TOLERANCES, tolerance])].sort((a, b) => a - b);
  return (
    <div className="view-controls">
      <label className="labelled-select">
        <span className="muted">Quality by</span>
        <select className="select" value={metric} onChange={(event) => setOptions({ metric: event.target.value })}>
          {metrics.map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label className="labelled-select">
        <span className="muted">Side by side at the same</span>
        <select
          className="select"
          value={align}
          onChange={({ target }) => setOptions({ align: ALIGNMENTS.find(({ id }) => id === target.value)?.id })}
        >
          {ALIGNMENTS.map(({ id, title }) => (
            <option key={id} value={id}>
              {title}
            </option>
          ))}
        </select>
      </label>
      <label className="labelled-select" title="A smaller relative difference is never called one">
        <span className="muted">Tolerance</span>
        <select
          className="select"
          value={tolerance}
          onChange={(event) => setOptions({ tolerance: Number(event.target.value) })}
        >
          {tolerances.map((share) => (
            <option key={share} value={share}>
              {formatShare(share)}
            </option>
          ))}
        </select>
      </label>
      <Choice label="Vertical axis" value={view.y} options={Y_AXES} onChange={setY} />
      <Choice label="Smoothing" value={view.smooth} options={SMOOTHINGS} onChange={setSmooth} />
      {view.range && (
        <button type="button" className="button" onClick={() => setRange(null)}>
          Show all
        </button>
      )}
    </div>
  );
}

export function ComparePill({ report, isZoomed }: { report: CompareReport; isZoomed: boolean }) {
  const { connection, client } = useLive();
  const lastStep = Math.max(0, ...report.members.map(({ last_step }) => last_step ?? 0));
  const newSteps = useStepsSincePaused(lastStep, isZoomed);
  useKeys({
    l: () => {
      if (isZoomed) setRange(null);
      else if (report.is_live && report.options.align === "attempts") setRange([0, Math.max(1, lastStep)]);
    },
  });
  if (connection.kind === "lost")
    return <ReconnectingPill retryAtMs={connection.retryAtMs} onRetry={() => client.retryNow()} />;
  if (newSteps !== null) {
    return <PausedPill isOver={!report.is_live} newSteps={newSteps} onResume={() => setRange(null)} />;
  }
  return (
    <span className="pill" data-testid="live-pill">
      {report.is_live && <Icon name="live" />}
      {report.is_live ? (connection.kind === "open" ? "Live" : "Connecting") : "Finished"}
    </span>
  );
}
