/** What the runs agree in: three counts that open, and what a difference makes impossible to say. */

import { useState } from "react";
import type { Fairness as FairnessData, FairnessItem, Member } from "../api/types";
import { formatCount } from "../lib/format";
import { Icon } from "../ui/icons";
import { MemberName } from "./MemberChips";

type Agreement = FairnessItem["state"];

const STATES: readonly { state: Agreement; title: string }[] = [
  { state: "same", title: "Same" },
  { state: "different", title: "Different" },
  { state: "unknown", title: "Unknown" },
];

interface FairnessProps {
  fairness: FairnessData;
  members: readonly Member[];
}

export function Fairness({ fairness, members }: FairnessProps) {
  const [open, setOpen] = useState<Agreement | null>(null);
  const counts = { same: fairness.num_same, different: fairness.num_different, unknown: fairness.num_unknown };
  const confounders = fairness.items.filter((item) => item.state === "different" && !item.is_intended && item.text);
  const intended = fairness.items.filter((item) => item.is_intended && item.state !== "same");
  const listed = fairness.items.filter(({ state }) => state === open);
  return (
    <section className="fairness" aria-label="Fairness" data-testid="fairness">
      <div className="fairness-counts">
        <h2 className="panel-title">Fair comparison?</h2>
        {STATES.map(({ state, title }) => (
          <button
            key={state}
            type="button"
            className="kind"
            aria-expanded={open === state}
            aria-pressed={open === state}
            disabled={!fairness.items.some((item) => item.state === state)}
            onClick={() => setOpen(open === state ? null : state)}
          >
            {title} {formatCount(counts[state])}
            <Icon name={open === state ? "up" : "down"} className="small" />
          </button>
        ))}
        {intended.length > 0 && (
          <span className="muted">
            compared on purpose: {intended.map(({ title }) => title.toLowerCase()).join(", ")}
          </span>
        )}
      </div>
      {confounders.length > 0 && (
        <ul className="reasons" aria-label="What makes them hard to compare">
          {confounders.map(({ id, title, text }) => (
            <li key={id} className="severity-warning">
              <Icon name="warning" />
              <span>
                <strong>{title}</strong> · {text}
              </span>
            </li>
          ))}
        </ul>
      )}
      {open && (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable from the keyboard
        <section className="side-scroll" tabIndex={0} aria-label={`${open}: by run`}>
          <table className="number-grid">
            <thead>
              <tr>
                <th scope="col">
                  <span className="sr-only">What</span>
                </th>
                {members.map((member) => (
                  <th key={member.run} scope="col">
                    <MemberName member={member} />
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {listed.map((item) => (
                <tr key={item.id}>
                  <th scope="row" title={item.text}>
                    {item.title}
                    {item.is_intended && <span className="muted"> · on purpose</span>}
                  </th>
                  {item.values.map((value, at) => (
                    <td key={members[at]?.run} className="mono">
                      {value}
                      {item.states[at] === "different" && <span className="sr-only"> (different)</span>}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </section>
      )}
    </section>
  );
}
