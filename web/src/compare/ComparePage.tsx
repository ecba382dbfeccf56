/** Compare: runs beside each other, a saved comparison, or what has been saved. */

import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { ApiError } from "../api/client";
import { FailedState, Loading } from "../ui/states";
import { Comparison } from "./Comparison";
import { comparisonQuery } from "./queries";
import { GoneState, StartPage } from "./StartPage";
import { optionsOf, useChosen } from "./view";

/** @param id of a saved comparison; empty: the runs are in the address. */
export function ComparePage({ id }: { id: string }) {
  const chosen = useChosen();
  if (id) return <Saved id={id} />;
  if (chosen.runs.length === 0) return <StartPage />;
  return <Comparison chosen={chosen} saved={null} />;
}

/** What was saved, under what the address says otherwise. */
function Saved({ id }: { id: string }) {
  const { data: saved, error, refetch } = useQuery(comparisonQuery(id));
  const chosen = useChosen();
  const present = useMemo(() => {
    if (!saved) return null;
    const kept = saved.runs.filter(({ is_deleted }) => !is_deleted).map((run) => run.id);
    return {
      ...chosen,
      runs: chosen.runs.length > 0 ? chosen.runs : kept,
      options: { ...optionsOf(saved.options), ...chosen.options },
    };
  }, [saved, chosen]);
  if (saved && present) return <Comparison chosen={present} saved={saved} />;
  if (error instanceof ApiError && error.status === 404) return <GoneState />;
  return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the comparison" />;
}
