/** The alerts of one run on its own pages: those that fire as lines, and the one that a link came for as a banner. */

import { useQuery } from "@tanstack/react-query";
import type { AlertItem } from "../api/types";
import { formatAge, formatCount } from "../lib/format";
import { useNow } from "../lib/hooks";
import { useKeys } from "../lib/keys";
import { Link, setQuery, usePlace } from "../lib/router";
import { Icon } from "../ui/icons";
import { toast } from "../ui/toast";
import { AlertIcon } from "./AlertCard";
import { inOrder } from "./FiringTab";
import { alertQuery, runFiringQuery, useAcknowledge } from "./queries";
import { alertTone, stepsOf } from "./words";

/** Lines of trouble that an Overview shows before its charts. */
export const MOST_LINES = 3;

export function useRunAlerts(run: string): AlertItem[] {
  const { data } = useQuery(runFiringQuery(run));
  // The one that a link came for stands above them.
  const linked = usePlace().query.get("alert");
  return data ? inOrder(data.alerts).filter(({ id }) => id !== linked) : [];
}

export function RunAlertLines({ alerts }: { alerts: AlertItem[] }) {
  const now = useNow(5000);
  const acknowledge = useAcknowledge();
  const take = (alert: AlertItem) =>
    acknowledge.mutate(alert.id, {
      onSuccess: () => toast(`Acknowledged: ${alert.text}`),
      onError: (error) => toast(error.message, { isError: true }),
    });
  useKeys({
    a: () => {
      const first = alerts.find(({ acknowledged_us }) => acknowledged_us === null);
      if (first) take(first);
    },
  });
  const [first] = alerts;
  if (!first) return null;
  return (
    <ul className="alert-lines" aria-label="Firing alerts" data-testid="run-alerts">
      {alerts.slice(0, MOST_LINES).map((alert) => (
        <li key={alert.id} className={`alert-line severity-${alertTone(alert)}`}>
          <AlertIcon alert={alert} />
          <Link to={alert.link} className="alert-row-text">
            {alert.text}
          </Link>
          <span className="muted">
            {formatAge(alert.fired_us ?? alert.first_us, now)}
            {alert.acknowledged_us !== null && " · acknowledged"}
            {alert.silence && " · silenced"}
          </span>
          {alert.acknowledged_us === null && (
            <button
              type="button"
              className="link-button"
              aria-label={`Acknowledge ${alert.text}`}
              onClick={() => take(alert)}
            >
              Acknowledge
            </button>
          )}
        </li>
      ))}
      {alerts.length > MOST_LINES && (
        <li>
          <Link to={`/alerts/history?run=${encodeURIComponent(first.run)}`}>
            and {formatCount(alerts.length - MOST_LINES)} more
          </Link>
        </li>
      )}
    </ul>
  );
}

/** The alert that was come for, where it is marked in the charts. */
export function LinkedAlert({ run }: { run: string }) {
  const { query } = usePlace();
  const id = query.get("alert") ?? "";
  const { data: alert } = useQuery({ ...alertQuery(id), enabled: id !== "" });
  const acknowledge = useAcknowledge();
  if (id === "" || !alert || alert.run !== run) return null;
  return (
    <section className={`banner linked-alert severity-${alertTone(alert)}`} aria-label="Alert">
      <AlertIcon alert={alert} />
      <div className="alert-main linked-main">
        <strong>{alert.text}</strong>
        <p className="muted">
          {stepsOf(alert)}
          {alert.fired_step !== null && ` · fired at step ${formatCount(alert.fired_step)}`}
          {/* What only says whether something is so has no number to tell. */}
          {alert.value_text && ` with ${alert.value_text} · limit ${alert.threshold_text}`}
          {alert.reason && ` · ${alert.reason}`}
        </p>
      </div>
      {alert.acknowledged_us === null && alert.state !== "resolved" && (
        <button
          type="button"
          className="button"
          disabled={acknowledge.isPending}
          onClick={() => acknowledge.mutate(alert.id, { onError: (error) => toast(error.message, { isError: true }) })}
        >
          Acknowledge
        </button>
      )}
      <Link to={`/alerts/rules/${encodeURIComponent(alert.rule)}?run=${encodeURIComponent(run)}`} className="button">
        Rule
      </Link>
      <button
        type="button"
        className="icon-button"
        aria-label="Show the run without this alert"
        onClick={() => setQuery({ alert: null })}
      >
        <Icon name="close" />
      </button>
    </section>
  );
}
