/** The runs of a comparison as chips, the baseline first: which is which, another baseline, one more, one less. */

import { useState } from "react";
import type { Member } from "../api/types";
import { Link } from "../lib/router";
import { Icon } from "../ui/icons";
import { ActionMenu } from "../ui/overlays";
import { MOST_MEMBERS } from "./address";
import { RunPicker } from "./RunPicker";
import { setRuns } from "./view";

/** The run with its letter and the colour of its lines. */
export function MemberName({ member }: { member: Pick<Member, "letter" | "name" | "precision_role"> }) {
  return (
    <span className="member-name" title={member.name}>
      <span className="member-letter">{member.letter}</span>
      {member.precision_role && (
        <span className="precision-mark" style={{ background: `var(--c-${member.precision_role})` }} />
      )}
      <span className="member-text">{member.name}</span>
    </span>
  );
}

export function MemberChips({ members }: { members: readonly Member[] }) {
  const [isPicking, setIsPicking] = useState(false);
  const runs = members.map(({ run }) => run);
  return (
    <ul className="member-chips" aria-label="Runs compared">
      {members.map((member, at) => (
        <li key={member.run} className="member-chip" data-run={member.run} data-testid={`member-${member.letter}`}>
          <Link to={`/runs/${member.run}`} className="member-link">
            <MemberName member={member} />
          </Link>
          <span className="muted member-facts">{at === 0 ? "baseline" : member.precision}</span>
          <ActionMenu
            label={`Actions for ${member.letter}, ${member.name}`}
            actions={[
              ...(at > 0
                ? [
                    {
                      id: "baseline",
                      text: "Make it the baseline (b)",
                      onAction: () => setRuns(withFirst(runs, member.run)),
                    },
                  ]
                : []),
              {
                id: "remove",
                text: "Remove from this comparison",
                onAction: () => setRuns(runs.filter((run) => run !== member.run)),
              },
            ]}
          />
        </li>
      ))}
      {members.length < MOST_MEMBERS && (
        <li>
          <button type="button" className="button" onClick={() => setIsPicking(true)}>
            <Icon name="plus" className="small" />
            Add run
          </button>
        </li>
      )}
      {isPicking && (
        <RunPicker
          title="Add a run"
          run={runs[0] ?? ""}
          present={runs}
          onPick={({ id }) => setRuns([...runs, id])}
          onClose={() => setIsPicking(false)}
        />
      )}
    </ul>
  );
}

export function withFirst(runs: readonly string[], first: string): string[] {
  return [first, ...runs.filter((run) => run !== first)];
}
