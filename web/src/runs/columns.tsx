/** The columns of the Runs table: title, width, how to sort by it and how a cell reads. */

import type { ReactNode } from "react";
import type { Num, RunSummary } from "../api/types";
import {
  formatAge,
  formatBytes,
  formatCompact,
  formatCount,
  formatLoss,
  formatScale,
  formatShare,
  formatTime,
} from "../lib/format";
import { Link } from "../lib/router";
import { RunStrip } from "../strip/RunStrip";
import { HealthWord, PrecisionChip } from "../ui/states";

export interface Column {
  id: string;
  title: string;
  /** CSS width; the name takes what is left. */
  width?: number;
  numeric?: boolean;
  /** Shown only when chosen. */
  optional?: boolean;
  sortBy?: (run: RunSummary) => number | string;
  cell: (run: RunSummary, nowMs: number) => ReactNode;
}

/** Non-finite and missing numbers sort below all others. */
function order(value: Num): number {
  return typeof value === "number" ? value : Number.NEGATIVE_INFINITY;
}

const GRAVITY = { critical: 3, warning: 2, info: 1, ok: 0 } as const;

export function ScaleText({ run }: { run: RunSummary }) {
  const { text, label } = formatScale(run.scale);
  return (
    <span title={run.scale === null ? "No loss scaler" : undefined}>
      <span aria-hidden="true">{text}</span>
      <span className="sr-only">{label}</span>
    </span>
  );
}

function skipsText(run: RunSummary): string {
  const { total, share } = run.skips;
  return total === 0 ? "0" : `${formatCount(total)} · ${formatShare(share)}`;
}

export const COLUMNS: Column[] = [
  {
    id: "health",
    title: "Health",
    width: 116,
    sortBy: (run) => GRAVITY[run.health.severity],
    cell: (run) => <HealthWord health={run.health} />,
  },
  {
    id: "name",
    title: "Run",
    sortBy: (run) => run.name.toLowerCase(),
    cell: (run) => (
      <div className="run-cell">
        <Link to={`/runs/${run.id}`} className="run-link" title={run.name} data-row>
          {run.name}
        </Link>
        <span className="muted run-project" title={run.project}>
          {run.project}
          {run.state !== "finished" && <> · {run.state_text}</>}
        </span>
      </div>
    ),
  },
  {
    id: "precision",
    title: "Precision",
    width: 112,
    sortBy: (run) => run.precision,
    cell: (run) => <PrecisionChip text={run.precision} role={run.precision_role} />,
  },
  {
    id: "strip",
    title: "Every step",
    // 320 px of strip and the cell's padding.
    width: 336,
    cell: (run) => <RunStrip run={run} />,
  },
  {
    id: "step",
    title: "Step",
    width: 116,
    numeric: true,
    sortBy: (run) => run.last_step ?? -1,
    cell: (run) => (
      <div className="two-lines">
        <span>{formatCount(run.last_step)}</span>
        {run.state === "live" && run.steps_per_s !== null && (
          <span className="muted">{formatCompact(run.steps_per_s)} steps/s</span>
        )}
      </div>
    ),
  },
  {
    id: "loss",
    title: "Loss",
    width: 88,
    numeric: true,
    sortBy: (run) => order(run.loss),
    cell: (run) => formatLoss(run.loss),
  },
  {
    id: "scale",
    title: "Scale",
    width: 76,
    numeric: true,
    sortBy: (run) => order(run.scale),
    cell: (run) => <ScaleText run={run} />,
  },
  {
    id: "skips",
    title: "Skips",
    width: 112,
    numeric: true,
    sortBy: (run) => run.skips.total,
    cell: skipsText,
  },
  {
    id: "device",
    title: "Device",
    width: 120,
    optional: true,
    sortBy: (run) => run.device,
    cell: (run) => <span title={run.device}>{run.device || "–"}</span>,
  },
  {
    id: "memory",
    title: "Memory",
    width: 96,
    numeric: true,
    optional: true,
    sortBy: (run) => order(run.memory_bytes),
    cell: (run) => formatBytes(run.memory_bytes),
  },
  {
    id: "tags",
    title: "Tags",
    width: 160,
    optional: true,
    cell: (run) => (
      <span className="tags">
        {run.tags.map((tag) => (
          <span key={tag} className="tag">
            {tag}
          </span>
        ))}
      </span>
    ),
  },
  {
    id: "age",
    title: "Updated",
    width: 84,
    numeric: true,
    // Newest first when it is asked for, like every other number: larger is later.
    sortBy: (run) => run.updated_us,
    cell: (run, nowMs) => <span title={formatTime(run.updated_us).utc}>{formatAge(run.updated_us, nowMs)}</span>,
  },
];

/** Runs in the order of `sort`: a column's id, with "-" in front for descending; else as the server ordered them. */
export function sortRuns(runs: RunSummary[], sort: string): RunSummary[] {
  const descending = sort.startsWith("-");
  const by = COLUMNS.find(({ id }) => id === sort.replace(/^-/, ""))?.sortBy;
  if (!by) return runs;
  return [...runs].sort((a, b) => {
    const [left, right] = [by(a), by(b)];
    const compared = left < right ? -1 : left > right ? 1 : 0;
    return descending ? -compared : compared;
  });
}
