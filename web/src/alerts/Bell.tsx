/** The bell of the top bar: how many alerts fire, and the gravest of them one click away on every page. */

import { useQuery } from "@tanstack/react-query";
import { Button, Dialog, DialogTrigger, Heading, Popover } from "react-aria-components";
import { formatAge, formatCount, shortenMiddle } from "../lib/format";
import { useNow } from "../lib/hooks";
import { Link } from "../lib/router";
import { Icon } from "../ui/icons";
import { FailedState, Loading } from "../ui/states";
import { toast } from "../ui/toast";
import { AlertIcon } from "./AlertCard";
import { inOrder } from "./FiringTab";
import { countsQuery, firingQuery, useAcknowledge } from "./queries";
import { alertTone } from "./words";

/** More are on the Alerts page. */
const MOST_SHOWN = 5;

export function bellWords(firing: number, unacknowledged: number): string {
  if (firing === 0) return "Alerts: nothing fires";
  const seen = firing - unacknowledged;
  return `Alerts: ${formatCount(firing)} firing${seen > 0 ? `, ${formatCount(seen)} of them acknowledged` : ""}`;
}

export function Bell() {
  const { data: counts } = useQuery(countsQuery);
  const words = bellWords(counts?.firing ?? 0, counts?.unacknowledged ?? 0);
  return (
    <DialogTrigger>
      <Button className="icon-button bell" aria-label={words}>
        <Icon name="bell" />
        <CountBadge />
      </Button>
      <Popover className="popover bell-popover" placement="bottom end">
        <Dialog className="bell-dialog">{({ close }) => <BellContent onClose={close} />}</Dialog>
      </Popover>
    </DialogTrigger>
  );
}

/** What nobody has acknowledged, on the bell and on the rail. */
export function CountBadge() {
  const { data: counts } = useQuery(countsQuery);
  const shown = counts?.unacknowledged ?? 0;
  if (shown === 0) return null;
  return (
    <span className={`badge ${counts && counts.critical > 0 ? "badge-critical" : "badge-warning"}`} aria-hidden="true">
      {shown > 99 ? "99+" : shown}
    </span>
  );
}

function BellContent({ onClose }: { onClose: () => void }) {
  const { data: list, error, refetch } = useQuery(firingQuery);
  const now = useNow(5000);
  const acknowledge = useAcknowledge();
  const alerts = list ? inOrder(list.alerts) : [];
  return (
    <>
      <Heading slot="title" className="panel-title bell-title">
        {list && alerts.length === 0 ? "Nothing fires" : "Firing"}
      </Heading>
      {!list && (error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the alerts" />)}
      {alerts.length > 0 && (
        <ul className="bell-list">
          {alerts.slice(0, MOST_SHOWN).map((alert) => (
            <li key={alert.id} className={`bell-item severity-${alertTone(alert)}`}>
              <AlertIcon alert={alert} />
              <div className="alert-main">
                <Link to={alert.link} className="alert-row-text" onClick={onClose}>
                  {alert.text}
                </Link>
                <p className="muted bell-facts">
                  {shortenMiddle(alert.run_name, 28)} · {formatAge(alert.fired_us ?? alert.first_us, now)} ago
                  {alert.acknowledged_us !== null && " · acknowledged"}
                  {alert.silence && " · silenced"}
                </p>
              </div>
              {alert.acknowledged_us === null && (
                <button
                  type="button"
                  className="icon-button"
                  aria-label={`Acknowledge ${alert.text}`}
                  title="Acknowledge"
                  onClick={() =>
                    acknowledge.mutate(alert.id, { onError: (failure) => toast(failure.message, { isError: true }) })
                  }
                >
                  <Icon name="check" />
                </button>
              )}
            </li>
          ))}
        </ul>
      )}
      <p className="bell-foot">
        <Link to="/alerts" className="button" onClick={onClose}>
          {alerts.length > MOST_SHOWN ? `All ${formatCount(alerts.length)} alerts` : "All alerts"}
        </Link>
        <Link to="/alerts/rules" className="button" onClick={onClose}>
          Rules
        </Link>
      </p>
    </>
  );
}
