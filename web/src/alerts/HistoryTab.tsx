/** History: every alert there has been, newest first, each with its evidence and what was sent. */

import { useInfiniteQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import type { AlertItem, NoticeItem } from "../api/types";
import { formatAge, formatCount, formatTime, shortenMiddle } from "../lib/format";
import { useNow } from "../lib/hooks";
import { Link, setQuery, usePlace } from "../lib/router";
import { useRowKeys } from "../lib/rows";
import { Icon } from "../ui/icons";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { AlertIcon, AlertNotes, AlertPlace, Evidence } from "./AlertCard";
import { historyQuery } from "./queries";
import { alertTone, lengthOf, STATE_WORDS, stepsOf } from "./words";

export function HistoryTab() {
  const { query } = usePlace();
  const filter = { run: query.get("run") ?? "", rule: query.get("rule") ?? "" };
  const { data, error, refetch, fetchNextPage, hasNextPage, isFetchingNextPage } = useInfiniteQuery(
    historyQuery(filter),
  );
  const now = useNow(5000);
  const list = useRef<HTMLOListElement>(null);
  useRowKeys(list);
  if (!data) return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the history" />;
  const alerts = data.pages.flatMap((page) => page.alerts);
  const isFiltered = filter.run !== "" || filter.rule !== "";
  if (alerts.length === 0 && !isFiltered) {
    return (
      <EmptyState title="No alert so far">
        <p>Each alert stays here with its steps, its evidence and what was sent.</p>
      </EmptyState>
    );
  }
  const runName = alerts.find(({ run }) => run === filter.run)?.run_name ?? filter.run;
  return (
    <>
      {isFiltered && (
        <p className="muted filter-count" role="status">
          {alerts.length === 0 ? "None" : "Only alerts"}
          {filter.rule && ` of the rule ${filter.rule}`}
          {filter.run && ` on ${runName}`}
          <button type="button" className="link-button" onClick={() => setQuery({ run: null, rule: null })}>
            show all
          </button>
        </p>
      )}
      {alerts.length > 0 && (
        <ol className="event-list" ref={list} data-testid="history">
          {alerts.map((alert) => (
            <HistoryRow key={alert.id} alert={alert} now={now} />
          ))}
        </ol>
      )}
      {hasNextPage && (
        <button type="button" className="button more" disabled={isFetchingNextPage} onClick={() => fetchNextPage()}>
          {isFetchingNextPage ? "Loading…" : "Show more"}
        </button>
      )}
    </>
  );
}

function HistoryRow({ alert, now }: { alert: AlertItem; now: number }) {
  const [open, setOpen] = useState(false);
  const began = formatTime(alert.fired_us ?? alert.first_us);
  return (
    <li className={`event severity-${alertTone(alert)}`} data-testid={`history-${alert.id}`}>
      <AlertIcon alert={alert} />
      <div className="event-main">
        <p className="event-title">
          <Link to={alert.link} className="alert-row-text" data-row>
            {alert.text}
          </Link>
        </p>
        <p className="alert-facts">
          <Link to={`/runs/${alert.run}`} title={`${alert.project} / ${alert.run_name}`}>
            {shortenMiddle(alert.run_name, 40)}
          </Link>
          <span className="muted">
            {stepsOf(alert)} · {alert.state === "resolved" ? "lasted" : "for"} {lengthOf(alert, now)}
          </span>
          <span className={alert.state === "resolved" ? "muted" : ""}>
            {STATE_WORDS[alert.state]}
            {alert.resolution && alert.resolution !== "cleared" && `: ${alert.resolution}`}
          </span>
          <AlertPlace alert={alert} />
        </p>
        {open && <HistoryDetails alert={alert} now={now} />}
      </div>
      <time className="event-time muted" dateTime={new Date((alert.fired_us ?? alert.first_us) / 1000).toISOString()}>
        <span title={began.utc}>{began.text}</span>
      </time>
      <button
        type="button"
        className="icon-button"
        aria-expanded={open}
        aria-label={`Details of ${alert.text}, ${stepsOf(alert)}`}
        onClick={() => setOpen(!open)}
      >
        <Icon name={open ? "up" : "down"} />
      </button>
    </li>
  );
}

function HistoryDetails({ alert, now }: { alert: AlertItem; now: number }) {
  return (
    <div className="history-details">
      <Evidence alert={alert} height={96} unit={alert.value_text ? "" : "flag"} />
      {/* A rule that cannot be judged has compared nothing. */}
      {alert.state !== "error" && (
        <p>
          {alert.value_text ? `${alert.value_text} when it fired` : "Fired"}
          {alert.fired_step !== null && ` at step ${formatCount(alert.fired_step)}`}
          {alert.value_text && `; the limit is ${alert.threshold_text}`}.
        </p>
      )}
      {alert.reason && <p className="muted">{alert.reason}</p>}
      <AlertNotes alert={alert} now={now} />
      {alert.notices.length > 0 && <Deliveries notices={alert.notices} now={now} />}
      <p className="alert-facts">
        <Link to={`/alerts/rules/${alert.rule}`}>The rule {alert.rule_name}</Link>
        <button type="button" className="link-button" onClick={() => setQuery({ rule: alert.rule }, { push: true })}>
          all of this rule
        </button>
        <button type="button" className="link-button" onClick={() => setQuery({ run: alert.run }, { push: true })}>
          all of this run
        </button>
      </p>
    </div>
  );
}

const NOTICE_WORDS: Record<NoticeItem["state"], string> = {
  waiting: "waiting",
  sending: "being sent",
  sent: "sent",
  failed: "given up",
};

function kindWords(kind: string): string {
  const [, times] = /^repeat:(\d+)$/.exec(kind) ?? [];
  return times ? `reminder ${times}` : kind;
}

/** The delivery log. */
function Deliveries({ notices, now }: { notices: NoticeItem[]; now: number }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable from the keyboard
    <section className="table-scroll" tabIndex={0} aria-label="Notifications">
      <table className="data-table deliveries">
        <thead>
          <tr>
            {["Channel", "About", "State", "Tries", "When", "Error"].map((title) => (
              <th key={title} scope="col">
                {title}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {notices.map((notice) => (
            <tr key={`${notice.channel} ${notice.kind}`}>
              <td>{notice.channel_name}</td>
              <td>{kindWords(notice.kind)}</td>
              <td>{NOTICE_WORDS[notice.state]}</td>
              <td>{notice.num_tries}</td>
              <td title={formatTime(notice.sent_us ?? notice.created_us).utc}>
                {formatAge(notice.sent_us ?? notice.created_us, now)} ago
              </td>
              <td className="delivery-error">{notice.error || "–"}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
