/** Choosing runs to compare: a box at every run, the button that leads there, and the keys for both. */

import type { RunSummary } from "../api/types";
import { baselineFirst, compareAddress, MOST_MEMBERS } from "../compare/address";
import { useKeys } from "../lib/keys";
import { navigate } from "../lib/router";
import { toast } from "../ui/toast";
import { setSelected, toggleSelected, useSelected } from "./selected";

export function SelectBox({ run }: { run: Pick<RunSummary, "id" | "name"> }) {
  const isSelected = useSelected().includes(run.id);
  return (
    <label className="select-box" title="Select for comparing (x)">
      <input
        type="checkbox"
        aria-label={`Select ${run.name}`}
        checked={isSelected}
        onChange={() => toggleSelected(run.id)}
      />
    </label>
  );
}

/** Why the chosen runs cannot be compared; empty if they can. */
function whyNot(num: number): string {
  if (num < 2) return "Select two or more runs: x selects the one in focus.";
  return num > MOST_MEMBERS ? `${num} runs are selected; at most ${MOST_MEMBERS} stand beside each other.` : "";
}

/** @param runs all there are: one that was chosen and is filtered away counts, one that was deleted does not. */
export function CompareChosen({ runs }: { runs: RunSummary[] }) {
  const selected = useSelected();
  const chosen = selected.map((id) => runs.find((run) => run.id === id)).filter((run) => run !== undefined);
  const problem = whyNot(chosen.length);
  const compare = () => {
    if (problem) toast(problem);
    else navigate(compareAddress(baselineFirst(chosen)));
  };
  useKeys({ c: compare, x: toggleFocused });
  return (
    <span className="compare-chosen">
      {chosen.length > 0 && (
        <button type="button" className="link-button" onClick={() => setSelected([])}>
          clear selection
        </button>
      )}
      <button
        type="button"
        className={problem ? "button" : "button primary"}
        aria-disabled={problem !== "" || undefined}
        title={problem || "Compare (c)"}
        onClick={compare}
      >
        Compare{chosen.length > 0 && ` (${chosen.length})`}
      </button>
    </span>
  );
}

/** The run in whose row, or card, the focus is. */
function toggleFocused(): void {
  const run = document.activeElement?.closest<HTMLElement>("[data-run]")?.dataset.run;
  if (run) toggleSelected(run);
}
