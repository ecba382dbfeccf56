/** The Runs table, from 768 px up. Rows never move under the pointer. */

import { useRef, useState } from "react";
import type { RunSummary } from "../api/types";
import { useNow } from "../lib/hooks";
import { usePrefs } from "../lib/prefs";
import { setQuery } from "../lib/router";
import { useRowKeys } from "../lib/rows";
import { RunMenu } from "../run/RunMenu";
import { Icon } from "../ui/icons";
import { COLUMNS, type Column, sortRuns } from "./columns";
import { useHeldOrder } from "./order";
import { SelectBox } from "./Selection";

export function RunsTable({ runs, sort }: { runs: RunSummary[]; sort: string }) {
  const { columns: chosen } = usePrefs();
  const columns = COLUMNS.filter(({ id, optional }) => !optional || chosen.includes(id));
  const [held, setHeld] = useState(false);
  const sorted = sortRuns(runs, sort);
  const { order, moved, apply } = useHeldOrder(
    sorted.map(({ id }) => id),
    held,
    sort,
  );
  const byId = new Map(runs.map((run) => [run.id, run]));
  const now = useNow(5000);
  const body = useRef<HTMLTableSectionElement>(null);
  useRowKeys(body);

  return (
    <div
      className="runs-table-box"
      onPointerEnter={(event) => setHeld(event.pointerType === "mouse")}
      onPointerLeave={() => setHeld(false)}
    >
      {held && moved > 0 && (
        <button type="button" className="pill pill-button moved-pill" onClick={apply}>
          {moved === 1 ? "1 row" : `${moved} rows`} moved: apply
        </button>
      )}
      <table className="runs-table">
        <colgroup>
          <col style={{ width: 40 }} />
          {columns.map(({ id, width }) => (
            <col key={id} style={width ? { width } : undefined} />
          ))}
          <col style={{ width: 48 }} />
        </colgroup>
        <thead>
          <tr>
            <th scope="col">
              <span className="sr-only">Select</span>
            </th>
            {columns.map((column) => (
              <HeaderCell key={column.id} column={column} sort={sort} />
            ))}
            <th scope="col">
              <span className="sr-only">Actions</span>
            </th>
          </tr>
        </thead>
        <tbody ref={body}>
          {order.map((id) => {
            const run = byId.get(id);
            return run ? <Row key={id} run={run} columns={columns} now={now} /> : null;
          })}
        </tbody>
      </table>
    </div>
  );
}

function HeaderCell({ column, sort }: { column: Column; sort: string }) {
  const { id, title, numeric, sortBy } = column;
  const direction = sort === id ? "ascending" : sort === `-${id}` ? "descending" : undefined;
  // Numbers start with the largest, words with A; the third press returns to the server's order.
  const first = numeric || id === "health" ? `-${id}` : id;
  const second = first === id ? `-${id}` : id;
  const next = sort === first ? second : sort === second ? null : first;
  return (
    <th scope="col" className={numeric ? "numeric" : undefined} aria-sort={direction}>
      {sortBy ? (
        <button type="button" className="sort-button" onClick={() => setQuery({ sort: next })}>
          {title}
          {direction && <Icon name={direction === "ascending" ? "up" : "down"} className="small" />}
        </button>
      ) : (
        title
      )}
    </th>
  );
}

function Row({ run, columns, now }: { run: RunSummary; columns: Column[]; now: number }) {
  return (
    <tr data-testid={`run-${run.id}`} data-run={run.id}>
      <td>
        <SelectBox run={run} />
      </td>
      {columns.map(({ id, numeric, cell }) => (
        <td key={id} className={numeric ? "numeric" : undefined}>
          {cell(run, now)}
        </td>
      ))}
      <td>
        <RunMenu summary={run} />
      </td>
    </tr>
  );
}
