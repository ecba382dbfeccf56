/** The strip of a run in a list: both lanes, and a menu on every bad mark. */

import { useState } from "react";
import type { RunSummary } from "../api/types";
import { navigate } from "../lib/router";
import { BadMenu } from "./BadMenu";
import { type Pick, Strip } from "./Strip";
import { around } from "./ZoomStrip";

const HEIGHTS = { upper: 22, gap: 2, lower: 7 };

export function RunStrip({ run }: { run: RunSummary }) {
  const [pick, setPick] = useState<Pick | null>(null);
  const { strip } = run;
  if (!strip) return <span className="muted">no step yet</span>;
  const range = pick && around(strip, pick.range.first_step, pick.range.last_step);
  return (
    <div className="strip-box">
      <Strip strip={strip} underflow={run.underflow ?? null} heights={HEIGHTS} onPick={setPick} />
      {pick && range && (
        <BadMenu
          run={run.id}
          pick={pick}
          hasLayers={run.underflow != null}
          around={range}
          onZoom={() => navigate(`/runs/${run.id}?r=${range[0]}-${range[1]}`)}
          onClose={() => setPick(null)}
        />
      )}
    </div>
  );
}
