/** From one run to a comparison: with a run to be chosen, or with the baseline it was started against. */

import type { RunSummary } from "../api/types";
import { Link, navigate } from "../lib/router";
import { Icon } from "../ui/icons";
import { baselineFirst, compareAddress } from "./address";
import { RunPicker } from "./RunPicker";

export function CompareWith({ run, onClose }: { run: RunSummary; onClose: () => void }) {
  return (
    <RunPicker
      title={`Compare ${run.name} with`}
      run={run.id}
      present={[run.id]}
      onPick={(picked) => navigate(compareAddress(baselineFirst([picked, run])))}
      onClose={onClose}
    />
  );
}

/** What a run was started to be compared with; nothing for a run that named none. */
export function BaselineLine({ run }: { run: RunSummary }) {
  const { baseline } = run;
  if (!baseline) return null;
  return (
    <p className="baseline-line muted" data-testid="baseline">
      <Icon name="compare" className="small" />
      {baseline.run ? (
        <span>
          Baseline: <Link to={`/runs/${baseline.run}`}>{baseline.name}</Link> ·{" "}
          <Link to={compareAddress([baseline.run, run.id])}>compare with it</Link>
        </span>
      ) : (
        <span>
          Baseline: <span className="mono">{baseline.asked}</span>, which is not on this server
        </span>
      )}
    </p>
  );
}
