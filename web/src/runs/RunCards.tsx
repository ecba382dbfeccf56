/** Runs on a phone: three lines each. */

import type { RunSummary } from "../api/types";
import { formatAge, formatCount, formatShare, formatTime } from "../lib/format";
import { useNow } from "../lib/hooks";
import { Link } from "../lib/router";
import { RunMenu } from "../run/RunMenu";
import { RunStrip } from "../strip/RunStrip";
import { HealthWord, PrecisionChip } from "../ui/states";
import { ScaleText, sortRuns } from "./columns";
import { SelectBox } from "./Selection";

export function RunCards({ runs, sort }: { runs: RunSummary[]; sort: string }) {
  const now = useNow(5000);
  return (
    <ul className="run-cards">
      {sortRuns(runs, sort).map((run) => (
        <li key={run.id} className="run-card" data-testid={`run-${run.id}`} data-run={run.id}>
          <div className="run-card-line">
            <SelectBox run={run} />
            <HealthWord health={run.health} />
            <Link to={`/runs/${run.id}`} className="run-link">
              {run.name}
            </Link>
            <span className="muted run-card-age" title={formatTime(run.updated_us).utc}>
              {formatAge(run.updated_us, now)}
            </span>
            <RunMenu summary={run} />
          </div>
          <div className="run-card-line run-card-facts">
            <PrecisionChip text={run.precision} role={run.precision_role} />
            <span>step {formatCount(run.last_step)}</span>
            {run.scale !== null && (
              <span>
                scale <ScaleText run={run} />
              </span>
            )}
            <span>
              {run.skips.total === 1 ? "1 skip" : `${formatCount(run.skips.total)} skips`}
              {run.skips.total > 0 && ` · ${formatShare(run.skips.share)}`}
            </span>
          </div>
          {run.strip && <RunStrip run={run} />}
        </li>
      ))}
    </ul>
  );
}
