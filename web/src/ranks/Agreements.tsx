/** What all ranks must have alike, over the steps of the run: where they parted first, who, and by what. */

import type { RankAgreement, RanksReport } from "../api/types";
import { formatCompact, formatCount } from "../lib/format";
import { parted } from "./order";

const OUTCOMES = {
  agree: { text: "alike", severity: "ok" },
  parted: { text: "parted", severity: "critical" },
  unknown: { text: "not compared yet", severity: "info" },
} as const;

export function Agreements({ report, lastStep }: { report: RanksReport; lastStep: number }) {
  if (report.agreement.length === 0) return null;
  return (
    <section aria-labelledby="ranks-agreement-title">
      <h2 className="section-title" id="ranks-agreement-title">
        What ranks must have alike
      </h2>
      <ul className="agreements" data-testid="agreement">
        {report.agreement.map((one) => (
          <Agreement key={one.fact} one={one} lastStep={lastStep} />
        ))}
      </ul>
    </section>
  );
}

function Agreement({ one, lastStep }: { one: RankAgreement; lastStep: number }) {
  const { text, severity } = OUTCOMES[one.outcome];
  return (
    <li className="agreement">
      <span className="agreement-fact">{one.fact}</span>
      <span className="agreement-bar" aria-hidden="true" data-outcome={one.outcome}>
        {parted(one, lastStep).map(({ from, width }) => (
          <span key={from} className="agreement-parted" style={{ left: `${100 * from}%`, width: `${100 * width}%` }} />
        ))}
      </span>
      <span className={`agreement-words severity-${severity}`}>
        {text}
        {one.stretches.length > 1 && ` ${formatCount(one.stretches.length)} times`}
        <span className="muted"> · {formatCount(one.num_steps)} steps compared</span>
        {one.first && <Parted parting={one.first} />}
      </span>
    </li>
  );
}

const MOST_NAMED = 4;

function Parted({ parting }: { parting: NonNullable<RankAgreement["first"]> }) {
  const { ranks, values, expected, first_step, last_step } = parting;
  const named = ranks.slice(0, MOST_NAMED).map((rank, at) => `rank ${formatCount(rank)}: ${wordsOf(values[at])}`);
  const more = ranks.length > MOST_NAMED ? ` and ${formatCount(ranks.length - MOST_NAMED)} more` : "";
  return (
    <span className="agreement-detail">
      first at step {formatCount(first_step)}
      {last_step == null ? ", still" : ` to ${formatCount(last_step)}`}; {named.join(", ")}
      {more}; the others: {wordsOf(expected)}
    </span>
  );
}

function wordsOf(value: number | null | undefined): string {
  if (value == null) return "not told";
  return Number.isInteger(value) ? formatCount(value) : formatCompact(value);
}
