/** Where Compare begins: what was saved, or how to compare runs. */

import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import type { SavedComparison } from "../api/types";
import { TopBarContent } from "../frame/top-bar";
import { formatAge, formatTime } from "../lib/format";
import { useNow, useTitle } from "../lib/hooks";
import { Link } from "../lib/router";
import { useRowKeys } from "../lib/rows";
import { ActionMenu } from "../ui/overlays";
import { EmptyState, FailedState, Loading, PrecisionChip } from "../ui/states";
import { DeleteComparison, NameDialog } from "./Actions";
import { savedAddress } from "./address";
import { comparisonsQuery, useSaveComparison } from "./queries";
import { optionsOf } from "./view";

export function StartPage() {
  useTitle("Compare");
  const { data, error, refetch } = useQuery({ ...comparisonsQuery, staleTime: 0 });
  return (
    <>
      <TopBarContent crumbs={[{ text: "Compare" }]} />
      <h1 className="sr-only">Compare</h1>
      {data ? (
        data.comparisons.length === 0 ? (
          <NoComparisons />
        ) : (
          <SavedList comparisons={data.comparisons} />
        )
      ) : error ? (
        <FailedState error={error} onRetry={refetch} />
      ) : (
        <Loading what="saved comparisons" />
      )}
    </>
  );
}

function NoComparisons() {
  return (
    <EmptyState title="Nothing compared yet">
      <p>
        Tick two to eight runs in the list and press <kbd>c</kbd>, or choose “Compare with…” in a run's menu. The first
        is the baseline: usually the FP32 training that the others are to be as good as.
      </p>
      <p className="muted">A comparison that you save stands here.</p>
      <Link to="/" className="button primary">
        Choose runs
      </Link>
    </EmptyState>
  );
}

function SavedList({ comparisons }: { comparisons: SavedComparison[] }) {
  const list = useRef<HTMLUListElement>(null);
  useRowKeys(list);
  const now = useNow(5000);
  return (
    <>
      <div className="toolbar">
        <h2 className="title">Saved comparisons</h2>
        <span className="push" />
        <Link to="/" className="button">
          Compare other runs
        </Link>
      </div>
      <ul ref={list} className="saved-list">
        {comparisons.map((saved) => (
          <SavedRow key={saved.id} saved={saved} now={now} />
        ))}
      </ul>
    </>
  );
}

function SavedRow({ saved, now }: { saved: SavedComparison; now: number }) {
  const [dialog, setDialog] = useState<"rename" | "delete" | null>(null);
  const save = useSaveComparison();
  const close = () => setDialog(null);
  const rename = (name: string) =>
    save.mutate(
      { id: saved.id, body: { name, runs: saved.runs.map(({ id }) => id), options: optionsOf(saved.options) } },
      { onSuccess: close },
    );
  return (
    <li className="saved-row">
      <div className="saved-main">
        <Link to={savedAddress(saved.id)} className="run-link" data-row>
          {saved.name}
        </Link>
        <ul className="saved-runs">
          {saved.runs.map((run, at) => (
            <li key={run.id} className="saved-run">
              {run.is_deleted ? (
                <span className="muted">
                  <s>{run.name}</s> (deleted)
                </span>
              ) : (
                <>
                  <PrecisionChip text={run.precision} role={run.precision_role} />
                  <span>{run.name}</span>
                  {at === 0 && <span className="muted">baseline</span>}
                </>
              )}
            </li>
          ))}
        </ul>
      </div>
      <span className="muted" title={formatTime(saved.updated_us).utc}>
        {formatAge(saved.updated_us, now)}
      </span>
      <ActionMenu
        label={`Actions for ${saved.name}`}
        actions={[
          { id: "rename", text: "Rename…", onAction: () => setDialog("rename") },
          { id: "delete", text: "Delete…", danger: true, onAction: () => setDialog("delete") },
        ]}
      />
      {dialog === "rename" && (
        <NameDialog
          title="Rename comparison"
          name={saved.name}
          error={save.error}
          isBusy={save.isPending}
          onName={rename}
          onClose={close}
        />
      )}
      {dialog === "delete" && <DeleteComparison saved={saved} onClose={close} />}
    </li>
  );
}

/** The address of a saved comparison that was deleted, or never was. */
export function GoneState() {
  useTitle("Compare");
  return (
    <>
      <TopBarContent crumbs={[{ text: "Compare", to: "/compare" }, { text: "Gone" }]} />
      <EmptyState title="There is no such comparison">
        <p>It was deleted, or never saved on this server.</p>
        <Link to="/compare" className="button primary">
          Back to Compare
        </Link>
      </EmptyState>
    </>
  );
}
