/** Choosing a run to hold against another: likely partners first, and a search over all. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { candidatesQuery } from "../api/queries";
import type { Candidate } from "../api/types";
import { RunSearch } from "../frame/QuickOpen";
import { useDebounced } from "../lib/hooks";
import { ModalDialog } from "../ui/overlays";
import { PrecisionChip } from "../ui/states";

interface RunPickerProps {
  title: string;
  /** What the others are to stand beside. */
  run: string;
  /** Ids of runs that are there already. */
  present: readonly string[];
  onPick: (run: Candidate) => void;
  onClose: () => void;
}

const SETTLE_MS = 150;

export function RunPicker({ title, run, present, onPick, onClose }: RunPickerProps) {
  const [search, setSearch] = useState("");
  const { data, error } = useQuery(candidatesQuery(run, useDebounced(search, SETTLE_MS)));
  const found = data?.candidates.filter(({ id }) => !present.includes(id)) ?? [];
  return (
    <ModalDialog title={title} isOpen onClose={onClose}>
      <RunSearch
        found={found}
        empty={error ? error.message : data ? "No other run fits." : "Loading…"}
        search={search}
        onSearch={setSearch}
        onPick={(id) => {
          const picked = found.find((candidate) => candidate.id === id);
          onClose();
          if (picked) onPick(picked);
        }}
      >
        {({ name, project, precision, precision_role, why }) => (
          <>
            <span className="quick-name">{name}</span>
            {why === "baseline" && <span className="tag">baseline</span>}
            <PrecisionChip text={precision} role={precision_role} />
            <span className="muted">{project}</span>
          </>
        )}
      </RunSearch>
    </ModalDialog>
  );
}
