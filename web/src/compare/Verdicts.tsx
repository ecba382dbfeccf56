/** Why each run came out as it did: mechanisms with their evidence, what to do, and what all of it rests on. */

import type { CompareReport, Member, Reason, Verdict } from "../api/types";
import { setLayer } from "../layers/selection";
import { formatCount, shortenMiddle } from "../lib/format";
import { Icon } from "../ui/icons";
import { LAYERS_ID } from "./Layers";
import { MemberName } from "./MemberChips";
import { MarkWord } from "./NumberGrid";
import { setMember } from "./view";
import { OUTCOMES } from "./words";

export function Verdicts({ report }: { report: CompareReport }) {
  return (
    <ul className="verdicts" data-testid="verdicts">
      {report.verdicts.map((verdict) => (
        <VerdictCard key={verdict.run} verdict={verdict} report={report} />
      ))}
    </ul>
  );
}

function VerdictCard({ verdict, report }: { verdict: Verdict; report: CompareReport }) {
  const member = report.members.find(({ run }) => run === verdict.run);
  const { reasons, limits } = verdict;
  const saysMore = report.verdicts.length > 1;
  if (!member || (!saysMore && reasons.length === 0 && limits.length === 0)) return null;
  return (
    <li className="verdict-card">
      {saysMore && (
        <p className="verdict-line">
          <MemberName member={member} />
          <MarkWord mark={OUTCOMES[verdict.outcome]} />
          <span>{verdict.sentence}</span>
        </p>
      )}
      {reasons.length > 0 && (
        <ul className="reasons">
          {reasons.map((reason) => (
            <ReasonLine
              key={`${reason.is_of_baseline} ${reason.id} ${reason.layer}`}
              reason={reason}
              run={verdict.run}
              whose={reason.is_of_baseline ? report.members[0] : undefined}
            />
          ))}
        </ul>
      )}
      {limits.length > 0 && <p className="muted verdict-limits">{limits.join(" · ")}</p>}
    </li>
  );
}

function ReasonLine({ reason, run, whose }: { reason: Reason; run: string; whose: Member | undefined }) {
  const { text, layer, step, certainty, advice } = reason;
  const open = () => {
    setMember(run);
    if (layer) setLayer(layer);
    document.getElementById(LAYERS_ID)?.scrollIntoView({ block: "start" });
  };
  return (
    <li className="severity-warning">
      <Icon name="warning" />
      <span>
        {whose && <MemberName member={whose} />}
        {whose && ": "}
        {text} <span className="muted">({certainty})</span>
        {advice && <span className="reason-advice">{advice}</span>}
        {layer && (
          <button type="button" className="link-button" onClick={open} title={layer}>
            open {shortenMiddle(layer)}
            {step != null && ` at step ${formatCount(step)}`}
          </button>
        )}
      </span>
    </li>
  );
}
