/** Every rank in a row, the worst first until somebody sorts; a row leads to the rank's own lines. */

import { useRef, useState } from "react";
import type { RankRow } from "../api/types";
import { formatBytes, formatCount, formatShare, formatSpan, MISSING } from "../lib/format";
import { Link, usePlace } from "../lib/router";
import { useRowKeys } from "../lib/rows";
import { type SortKey, sorted } from "./order";

/** Rows shown before somebody asks for all. */
const FEW_ROWS = 16;

export const STATES: Record<RankRow["state"], { text: string; severity: string }> = {
  training: { text: "training", severity: "ok" },
  waiting: { text: "waiting for others", severity: "info" },
  stuck: { text: "stuck", severity: "critical" },
  lost_contact: { text: "lost contact", severity: "warning" },
  killed: { text: "killed", severity: "critical" },
  exception: { text: "ended by an exception", severity: "critical" },
  finished: { text: "finished", severity: "ok" },
};

const COLUMNS: { key: SortKey; title: string; tooltip?: string }[] = [
  { key: "rank", title: "Rank" },
  { key: "worst", title: "State", tooltip: "Sorts the worst first" },
  { key: "step", title: "Step" },
  { key: "step_s", title: "Step time", tooltip: "Median of the last 200 steps" },
  { key: "busy", title: "Busy", tooltip: "Step time without waiting for others; median of the last 200 steps" },
  { key: "wait", title: "Waits", tooltip: "Share of step time that it waits for others and the wire" },
  { key: "nonfinite", title: "NaN/Inf steps", tooltip: "Steps in which its own gradient was not finite" },
  { key: "memory", title: "Memory" },
];

export function RankTable({ rows, chosen }: { rows: RankRow[]; chosen: number | null }) {
  const [sort, setSort] = useState<{ key: SortKey; isDescending: boolean }>({ key: "worst", isDescending: true });
  const [all, setAll] = useState(false);
  const list = useRef<HTMLTableSectionElement>(null);
  useRowKeys(list);
  const { path, query } = usePlace();
  const inOrder = sorted(rows, sort.key, sort.isDescending);
  const shown = all ? inOrder : inOrder.slice(0, FEW_ROWS);
  const by = (key: SortKey) => setSort({ key, isDescending: sort.key === key ? !sort.isDescending : key !== "rank" });
  const to = (rank: number) => `${path}?${new URLSearchParams([...withoutRank(query), ["rank", String(rank)]])}`;
  return (
    <section aria-labelledby="ranks-table-title">
      <h2 className="section-title" id="ranks-table-title">
        {formatCount(rows.length)} {rows.length === 1 ? "rank" : "ranks"}
      </h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable from the keyboard */}
      <section className="side-scroll" tabIndex={0} aria-label="Every rank">
        <table className="number-grid rank-table" data-testid="rank-table">
          <thead>
            <tr>
              {COLUMNS.map(({ key, title, tooltip }) => (
                <th
                  key={key}
                  scope="col"
                  aria-sort={
                    sort.key !== key || key === "worst" ? undefined : sort.isDescending ? "descending" : "ascending"
                  }
                >
                  <button type="button" className="link-button" title={tooltip} onClick={() => by(key)}>
                    {title}
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody ref={list}>
            {shown.map((row) => (
              <tr key={row.rank} className={row.rank === chosen ? "chosen" : undefined}>
                <th scope="row">
                  <Link to={to(row.rank)} data-row aria-current={row.rank === chosen ? "true" : undefined}>
                    {formatCount(row.rank)}
                  </Link>
                  <span className="muted rank-place" title={placeOf(row)}>
                    {row.host}
                  </span>
                </th>
                <td className={`severity-${STATES[row.state].severity}`}>{STATES[row.state].text}</td>
                <td>
                  {formatCount(row.last_step)}
                  {row.num_behind > 0 && <span className="muted"> −{formatCount(row.num_behind)}</span>}
                </td>
                <td>{row.step_s == null ? MISSING : formatSeconds(row.step_s)}</td>
                <td>{row.busy_s == null ? MISSING : formatSeconds(row.busy_s)}</td>
                <td>{row.wait_share == null ? MISSING : formatShare(row.wait_share)}</td>
                <td>
                  {formatCount(row.num_nonfinite)}
                  {row.first_nonfinite_step != null && (
                    <span className="muted"> from {formatCount(row.first_nonfinite_step)}</span>
                  )}
                </td>
                <td>{formatBytes(row.memory_bytes)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      {inOrder.length > FEW_ROWS && (
        <button type="button" className="button more" onClick={() => setAll(!all)}>
          {all ? `Show ${FEW_ROWS}` : `Show all ${formatCount(inOrder.length)}`}
        </button>
      )}
    </section>
  );
}

function withoutRank(query: URLSearchParams): [string, string][] {
  return [...query].filter(([key]) => key !== "rank");
}

export function placeOf({ host, local_rank, pid, mesh }: RankRow): string {
  const places = Object.entries(mesh).map(([name, [at, of]]) => `${name} ${at} of ${of}`);
  return [`local rank ${local_rank} on ${host}`, `process ${pid}`, ...places].join(" · ");
}

/** Below a second in milliseconds: steps mostly are. */
export function formatSeconds(seconds: number): string {
  if (seconds >= 1) return formatSpan(seconds);
  const ms = seconds * 1000;
  return ms >= 1 ? `${Number(ms.toPrecision(3))} ms` : `${Number((ms * 1000).toPrecision(3))} µs`;
}
