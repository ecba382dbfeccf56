/** Events: what happened, newest first or in order, filtered by kind, page by page; each leads to its step. */

import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { eventsQuery, layersQuery } from "../api/queries";
import type { EventItem, EventKind, RunSummary, Strip } from "../api/types";
import { layersAddress } from "../layers/address";
import { formatCount, formatTime, shortenMiddle } from "../lib/format";
import { Link, setQuery, usePlace } from "../lib/router";
import { useRowKeys } from "../lib/rows";
import { around } from "../strip/ZoomStrip";
import { Icon, SEVERITY_ICON } from "../ui/icons";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { toSteps, useView } from "./view";

/** The whole run, by what NaN and Inf are looked for with. */
const EVERY_LAYER = { x: "step", first: null, last: null, stat: "nonfinite" } as const;

interface EventsProps {
  summary: RunSummary;
  strip: Strip | null;
  /** From the live messages; null before the first. A change means that there is something new. */
  numEvents: number | null;
}

export function EventsTab({ summary, strip, numEvents }: EventsProps) {
  const { query } = usePlace();
  const kinds = (query.get("kind") ?? "").split(",").filter(Boolean);
  const oldestFirst = query.get("order") === "oldest";
  const view = useView();
  const { rank } = view;
  const steps = toSteps(view, strip?.clock ?? []);
  const { data, error, refetch, fetchNextPage, hasNextPage, isFetchingNextPage } = useInfiniteQuery(
    eventsQuery(summary.id, kinds, !oldestFirst, steps, rank),
  );
  const asked = useRef(numEvents);
  useEffect(() => {
    if (asked.current !== null && numEvents !== null && numEvents !== asked.current) refetch();
    asked.current = numEvents;
  }, [numEvents, refetch]);
  const { data: tree } = useQuery(layersQuery(summary.id, EVERY_LAYER));
  const known = useMemo(() => new Set(tree?.nodes.map(({ name }) => name).filter((name) => name !== "")), [tree]);
  const list = useRef<HTMLOListElement>(null);
  useRowKeys(list);

  if (!data) return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the events" />;
  const events = data.pages.flatMap((page) => page.events);
  const head = data.pages[0];
  const allKinds = head?.kinds ?? [];
  const total = allKinds.reduce((sum, { count }) => sum + count, 0);
  const isPart = steps !== null || rank !== null;
  if (total === 0 && !isPart) {
    return (
      <EmptyState title="No events yet">
        <p>Skipped steps, changes of the loss scale, NaN and Inf appear here when they happen.</p>
      </EmptyState>
    );
  }
  return (
    <div className="events">
      <div className="events-toolbar">
        <KindFilter kinds={allKinds} chosen={kinds} />
        <button type="button" className="button" onClick={() => setQuery({ order: oldestFirst ? null : "oldest" })}>
          <Icon name={oldestFirst ? "up" : "down"} />
          {oldestFirst ? "Oldest first" : "Newest first"}
        </button>
      </div>
      <p className="muted" role="status">
        {kinds.length > 0 ? `${formatCount(head?.total ?? 0)} of ${formatCount(total)}` : formatCount(total)}
        {total === 1 ? " event" : " events"}
        {steps && ` in steps ${formatCount(steps[0])}-${formatCount(steps[1])}`}
        {rank !== null && ` of rank ${formatCount(rank)}`}
        {(kinds.length > 0 || isPart) && (
          <button
            type="button"
            className="link-button"
            onClick={() => setQuery({ kind: null, r: null, rank: null, step: null })}
          >
            {isPart ? "show all" : "clear"}
          </button>
        )}
      </p>
      <ol ref={list} className="event-list" data-testid="events">
        {events.map((event) => (
          <EventRow key={event.id} event={event} summary={summary} strip={strip} known={known} />
        ))}
      </ol>
      {hasNextPage && (
        <button type="button" className="button more" disabled={isFetchingNextPage} onClick={() => fetchNextPage()}>
          {isFetchingNextPage ? "Loading…" : "Show more"}
        </button>
      )}
    </div>
  );
}

function KindFilter({ kinds, chosen }: { kinds: EventKind[]; chosen: string[] }) {
  const toggle = (kind: string) => {
    const next = chosen.includes(kind) ? chosen.filter((other) => other !== kind) : [...chosen, kind];
    setQuery({ kind: next.join(",") });
  };
  return (
    <fieldset className="kind-filter">
      <legend className="sr-only">Kinds of events</legend>
      {kinds.map(({ kind, title, count, severity }) => (
        <button
          key={kind}
          type="button"
          className={`kind severity-${severity}`}
          aria-pressed={chosen.includes(kind)}
          onClick={() => toggle(kind)}
        >
          <Icon name={SEVERITY_ICON[severity]} className="small" />
          {title} <span className="count">{formatCount(count)}</span>
        </button>
      ))}
    </fieldset>
  );
}

interface EventRowProps {
  event: EventItem;
  summary: RunSummary;
  strip: Strip | null;
  /** Names of what the Layers page can show. */
  known: ReadonlySet<string>;
}

/** Layers that an event leads to, on its row; the details have them all. */
const MOST_LINKS = 3;

/** The layer in which it began, then the others that it names; what is no layer (an optimizer, a scaler) is left out. */
export function layersOf({ where, details }: EventItem, known: ReadonlySet<string>): string[] {
  const named = [details.origin_layer, ...where, ...(Array.isArray(details.nonfinite) ? details.nonfinite : [])];
  return [...new Set(named)].filter((name): name is string => known.has(name as string)).slice(0, MOST_LINKS);
}

function EventRow({ event, summary, strip, known }: EventRowProps) {
  const [open, setOpen] = useState(false);
  const { text, utc } = formatTime(event.time_us);
  const range = strip && strip.last_step > strip.first_step ? around(strip, event.step, event.step) : null;
  const layers = layersOf(event, known);
  const hasDetails = Object.keys(event.details).length > 0 || event.where.length > 0;
  return (
    <li className="event">
      <span className={`event-icon severity-${event.severity}`}>
        <Icon name={SEVERITY_ICON[event.severity]} />
        <span className="sr-only">{event.severity}</span>
      </span>
      <div className="event-main">
        <p className="event-title">
          <strong>{event.title}</strong>
          <Link
            to={`/runs/${summary.id}${range ? `?r=${range[0]}-${range[1]}` : ""}`}
            className="event-step"
            title="Show in the charts"
            data-row
          >
            step {formatCount(event.step)}
          </Link>
          {summary.world_size > 1 && <span className="muted">rank {event.rank}</span>}
          {summary.attempts > 1 && <span className="muted">restart {event.attempt}</span>}
        </p>
        {event.text && <p className="event-text">{event.text}</p>}
        {layers.length > 0 && (
          <p className="event-layers">
            <span className="muted">Open at this step:</span>
            {layers.map((layer) => (
              <Link
                key={layer}
                to={layersAddress(summary.id, { layer, step: event.step, stat: "nonfinite", range })}
                className="mono"
                title={layer}
              >
                {shortenMiddle(layer, 40)}
              </Link>
            ))}
          </p>
        )}
        {open && <EventDetails event={event} />}
      </div>
      <time className="event-time muted" dateTime={new Date(event.time_us / 1000).toISOString()} title={utc}>
        {text}
      </time>
      {hasDetails ? (
        <button
          type="button"
          className="icon-button"
          aria-expanded={open}
          aria-label={`Details of ${event.title}, step ${formatCount(event.step)}`}
          onClick={() => setOpen(!open)}
        >
          <Icon name={open ? "up" : "down"} />
        </button>
      ) : (
        <span />
      )}
    </li>
  );
}

function EventDetails({ event }: { event: EventItem }) {
  const entries = Object.entries(event.details);
  return (
    <dl className="event-details">
      {event.where.length > 0 && <Detail name="where" value={event.where} />}
      {entries.map(([name, value]) => (
        <Detail key={name} name={name} value={value} />
      ))}
    </dl>
  );
}

function Detail({ name, value }: { name: string; value: unknown }) {
  const items = Array.isArray(value) ? value.map(String) : null;
  return (
    <div>
      <dt>{name.replaceAll("_", " ")}</dt>
      <dd className="mono">
        {items
          ? items.map((item) => (
              <span key={item} className="detail-item" title={item}>
                {shortenMiddle(item, 40)}
              </span>
            ))
          : typeof value === "object"
            ? JSON.stringify(value)
            : String(value)}
      </dd>
    </div>
  );
}
