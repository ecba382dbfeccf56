/** Firing: what needs a person now, gravest first, and what is silenced. */

import { useQuery } from "@tanstack/react-query";
import { useRef } from "react";
import type { AlertItem, RuleList, SilenceItem } from "../api/types";
import { formatAge, formatCount, formatSpan, formatTime } from "../lib/format";
import { useNow } from "../lib/hooks";
import { useKeys } from "../lib/keys";
import { Link } from "../lib/router";
import { useRowKeys } from "../lib/rows";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { toast } from "../ui/toast";
import { AlertCard } from "./AlertCard";
import { firingQuery, rulesQuery, silencesQuery, useAcknowledge, useLift } from "./queries";

const RANKS: Record<AlertItem["severity"], number> = { critical: 0, warning: 1, info: 2 };

/** Not seen yet before seen, graver before lesser, newer before older. */
export function inOrder(alerts: AlertItem[]): AlertItem[] {
  return [...alerts].sort(
    (a, b) =>
      Number(a.acknowledged_us !== null) - Number(b.acknowledged_us !== null) ||
      RANKS[a.severity] - RANKS[b.severity] ||
      (b.fired_us ?? b.first_us) - (a.fired_us ?? a.first_us),
  );
}

export function FiringTab() {
  const { data: list, error, refetch } = useQuery(firingQuery);
  const { data: rules } = useQuery(rulesQuery);
  const now = useNow(5000);
  const cards = useRef<HTMLUListElement>(null);
  const alerts = list ? inOrder(list.alerts) : [];
  useRowKeys(cards);
  useAcknowledgeKey(alerts, cards);
  if (!list) return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the alerts" />;
  return (
    <>
      {alerts.length === 0 && <NothingFires rules={rules} />}
      {alerts.length > 0 && (
        <ul className="alert-cards" ref={cards} data-testid="alerts" aria-label="Firing alerts">
          {alerts.map((alert) => (
            <AlertCard key={alert.id} alert={alert} now={now} />
          ))}
        </ul>
      )}
      <Silences now={now} />
    </>
  );
}

/** `a` takes the alert that has the focus, else the first that nobody has acknowledged. */
function useAcknowledgeKey(alerts: AlertItem[], cards: { current: HTMLElement | null }) {
  const acknowledge = useAcknowledge();
  useKeys({
    a: () => {
      const focused = document.activeElement?.closest<HTMLElement>("[data-alert]");
      const inFocus = focused && cards.current?.contains(focused) ? focused.dataset.alert : undefined;
      const chosen = inFocus
        ? alerts.find(({ id }) => id === inFocus)
        : alerts.find(({ acknowledged_us }) => acknowledged_us === null);
      if (!chosen || chosen.acknowledged_us !== null) return;
      acknowledge.mutate(chosen.id, {
        onSuccess: () => toast(`Acknowledged: ${chosen.text}`),
        onError: (error) => toast(error.message, { isError: true }),
      });
    },
  });
}

function NothingFires({ rules }: { rules: RuleList | undefined }) {
  const numOn = rules?.rules.filter(({ rule }) => rule.enabled).length ?? 0;
  const numPending = rules?.rules.reduce((sum, { pending }) => sum + pending, 0) ?? 0;
  if (rules && numOn === 0) {
    return (
      <EmptyState title="Nothing is watched yet">
        <p>Alerts come from rules, and none is on. The recommended ones are one click away.</p>
        <Link to="/alerts/rules" className="button primary">
          Choose rules
        </Link>
      </EmptyState>
    );
  }
  return (
    <EmptyState title="Nothing fires">
      <p>
        {numOn === 1 ? "1 rule watches" : `${formatCount(numOn)} rules watch`} every run
        {numPending > 0 && `, ${formatCount(numPending)} ${numPending === 1 ? "is" : "are"} pending`}.
      </p>
      <Link to="/alerts/history" className="button">
        History
      </Link>
    </EmptyState>
  );
}

function Silences({ now }: { now: number }) {
  const { data } = useQuery(silencesQuery);
  if (!data || data.silences.length === 0) return null;
  return (
    <section aria-labelledby="silences-title">
      <h2 className="section-title" id="silences-title">
        Silenced <span className="count">{formatCount(data.silences.length)}</span>
      </h2>
      <ul className="plain-rows" data-testid="silences">
        {data.silences.map((silence) => (
          <SilenceRow key={silence.id} silence={silence} now={now} />
        ))}
      </ul>
    </section>
  );
}

function SilenceRow({ silence, now }: { silence: SilenceItem; now: number }) {
  const lift = useLift();
  const { data: rules } = useQuery(rulesQuery);
  const name = rules?.rules.find(({ rule }) => rule.id === silence.rule)?.rule.name ?? silence.rule;
  const parts = [
    silence.rule && `rule ${name}`,
    silence.run && `run ${silence.run_name || silence.run}`,
    silence.layer && `layer ${silence.layer}`,
  ].filter(Boolean);
  const what = parts.length > 0 ? parts.join(", ") : "every alert";
  return (
    <li className="plain-row">
      <div>
        <strong>{what.charAt(0).toUpperCase() + what.slice(1)}</strong>
        <p className="muted">
          {silence.until_us === null ? (
            "until it is lifted"
          ) : (
            <span title={formatTime(silence.until_us).text}>
              ends in {formatSpan(Math.max(0, silence.until_us / 1e6 - now / 1000))}
            </span>
          )}{" "}
          · since {formatAge(silence.created_us, now)}
          {silence.comment && ` · ${silence.comment}`}
        </p>
      </div>
      <button
        type="button"
        className="button"
        disabled={lift.isPending}
        aria-label={`Lift the silence of ${what}`}
        onClick={() => lift.mutate(silence.id, { onError: (error) => toast(error.message, { isError: true }) })}
      >
        Lift
      </button>
    </li>
  );
}
