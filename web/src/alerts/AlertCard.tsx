/** One alert: what is the case in a sentence, the evidence as a spark, what became of it, and what can be done. */

import { useState } from "react";
import type { AlertItem } from "../api/types";
import { formatAge, formatCount, formatTime, shortenMiddle } from "../lib/format";
import { Link, navigate } from "../lib/router";
import { Icon } from "../ui/icons";
import { ActionMenu } from "../ui/overlays";
import { toast } from "../ui/toast";
import type { Series } from "./geometry";
import { useAcknowledge, useLift, useSilence } from "./queries";
import { HOUR_S, SilenceDialog } from "./SilenceDialog";
import { ValueChart } from "./ValueChart";
import { alertIcon, alertTone, isMute, noticeWords, STATE_WORDS, silenceWords } from "./words";

const SPARK_HEIGHT_PX = 56;

export function AlertCard({ alert, now }: { alert: AlertItem; now: number }) {
  return (
    <li className={`alert-card severity-${alertTone(alert)}`} data-testid={`alert-${alert.id}`} data-alert={alert.id}>
      <AlertIcon alert={alert} />
      <div className="alert-main">
        <h2 className="alert-text">
          {/* The card's place in the row of cards: j and k go from one to the next. */}
          <Link to={alert.link} data-row>
            {alert.text}
          </Link>
        </h2>
        <p className="alert-facts">
          <Link to={`/runs/${alert.run}`} title={`${alert.project} / ${alert.run_name}`}>
            {shortenMiddle(alert.run_name, 40)}
          </Link>
          <span className="muted">
            since step {formatCount(alert.first_step)} ·{" "}
            <span title={formatTime(alert.fired_us ?? alert.first_us).utc}>
              {formatAge(alert.fired_us ?? alert.first_us, now)} ago
            </span>
          </span>
          <AlertPlace alert={alert} />
        </p>
        {alert.reason && <p className="alert-reason muted">{alert.reason}</p>}
        <AlertNotes alert={alert} now={now} />
      </div>
      <Evidence alert={alert} height={SPARK_HEIGHT_PX} />
      <AlertActions alert={alert} />
    </li>
  );
}

/** Severity as shape and colour, its word for who sees neither. */
export function AlertIcon({ alert }: { alert: AlertItem }) {
  const title = alert.state === "firing" ? alert.severity : `${STATE_WORDS[alert.state]}, ${alert.severity}`;
  return (
    <span className="alert-icon" title={title}>
      <Icon name={alertIcon(alert)} />
      <span className="sr-only">{title}</span>
    </span>
  );
}

/** Rank and labels, where the alert is about one of several. */
export function AlertPlace({ alert }: { alert: AlertItem }) {
  const parts = [
    ...(alert.rank === null ? [] : [`rank ${alert.rank}`]),
    ...Object.entries(alert.labels).map(([name, value]) => `${name} ${value}`),
  ];
  return parts.length > 0 ? <span className="muted">{parts.join(" · ")}</span> : null;
}

/** Who has seen it, what was sent, and why nothing was. */
export function AlertNotes({ alert, now }: { alert: AlertItem; now: number }) {
  const { text, isFailed } = noticeWords(alert.notices);
  return (
    <p className="alert-notes">
      {alert.acknowledged_us !== null && (
        <span title={formatTime(alert.acknowledged_us).utc}>
          <Icon name="check" className="small" />
          Acknowledged{alert.acknowledged_by && ` by ${alert.acknowledged_by}`} {formatAge(alert.acknowledged_us, now)}{" "}
          ago
        </span>
      )}
      {alert.silence && (
        <span title={alert.silence.comment || undefined}>
          <Icon name="muted" className="small" />
          {silenceWords(alert.silence, now)}
        </span>
      )}
      {alert.muted_by && (
        <span className="muted">
          <Icon name="muted" className="small" />
          Not sent: {alert.muted_by}
        </span>
      )}
      {text && (
        <span className={isFailed ? "form-error" : "muted"} title={alert.notices.find(({ error }) => error)?.error}>
          <Icon name={isFailed ? "warning" : "sent"} className="small" />
          {text}
        </span>
      )}
      {alert.runbook && (
        <a href={alert.runbook} target="_blank" rel="noreferrer">
          Runbook
        </a>
      )}
    </p>
  );
}

/** What was compared around the firing, with the threshold. */
export function Evidence({ alert, height, unit = null }: { alert: AlertItem; height: number; unit?: string | null }) {
  const steps = alert.spark_steps;
  const [first, last] = [steps[0], steps.at(-1)];
  if (first === undefined || last === undefined || last === first) return <span className="alert-no-evidence" />;
  const series: Series = { steps, low: alert.spark_values, high: alert.spark_values };
  const threshold = typeof alert.threshold === "number" ? alert.threshold : null;
  return (
    <ValueChart
      series={series}
      span={[first, last]}
      threshold={threshold}
      stretches={[{ first: Math.max(first, alert.first_step), last: alert.resolved_step, fired: alert.fired_step }]}
      severity={alert.severity}
      height={height}
      unit={unit}
      label={`${alert.value_text ? `${alert.value_text} where ${alert.threshold_text} is the limit` : "When it was so"}, steps ${formatCount(first)} to ${formatCount(last)}`}
    />
  );
}

function AlertActions({ alert }: { alert: AlertItem }) {
  const acknowledge = useAcknowledge();
  const silence = useSilence();
  const lift = useLift();
  const [dialog, setDialog] = useState(false);
  const fail = (error: Error) => toast(error.message, { isError: true });
  const silenceHour = () =>
    silence.mutate(
      { rule: alert.rule, run: alert.run, layer: alert.layer, for_s: HOUR_S },
      { onSuccess: () => toast("Silenced for an hour"), onError: fail },
    );
  return (
    <div className="alert-actions">
      {alert.acknowledged_us === null && (
        <button
          type="button"
          className="button"
          disabled={acknowledge.isPending}
          onClick={() => acknowledge.mutate(alert.id, { onError: fail })}
        >
          Acknowledge
        </button>
      )}
      {alert.silence ? (
        <button
          type="button"
          className="button"
          disabled={lift.isPending}
          onClick={() => lift.mutate(alert.silence?.id ?? "", { onError: fail })}
        >
          {isMute(alert.silence) ? "Unmute run" : "Lift silence"}
        </button>
      ) : (
        <button type="button" className="button" disabled={silence.isPending} onClick={silenceHour}>
          Silence 1 h
        </button>
      )}
      <Link to={alert.link} className="button">
        Open at step
      </Link>
      <ActionMenu
        label={`More for ${alert.text}`}
        actions={[
          { id: "silence", text: "Silence…", onAction: () => setDialog(true) },
          { id: "rule", text: "Open the rule", onAction: () => navigate(`/alerts/rules/${alert.rule}`) },
          {
            id: "history",
            text: "History of this rule",
            onAction: () => navigate(`/alerts/history?rule=${encodeURIComponent(alert.rule)}`),
          },
        ]}
      />
      {dialog && (
        <SilenceDialog
          title="Silence alerts"
          subject={{
            rule: alert.rule,
            ruleName: alert.rule_name,
            run: alert.run,
            runName: alert.run_name,
            layer: alert.layer,
          }}
          parts={alert.layer ? ["rule", "run", "layer"] : ["rule", "run"]}
          onClose={() => setDialog(false)}
        />
      )}
    </div>
  );
}
