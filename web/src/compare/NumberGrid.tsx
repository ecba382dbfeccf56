/** The numbers of all members, a row for each quantity and a column for each run. */

import type { CompareReport } from "../api/types";
import { MemberName } from "./MemberChips";
import { type Mark, numberRows, OUTCOMES, type Outcome } from "./words";

export function MarkWord({ mark }: { mark: Mark }) {
  return (
    <span className={`mark mark-${MARK_CLASSES[mark.sign]}`}>
      <span aria-hidden="true">{mark.sign}</span> {mark.word}
    </span>
  );
}

/** Before a sentence that says in words what it means. */
export function OutcomeSign({ outcome }: { outcome: Outcome }) {
  const { sign } = OUTCOMES[outcome];
  return (
    <span className={`mark-${MARK_CLASSES[sign]}`} aria-hidden="true">
      {sign}
    </span>
  );
}

/** A number and its unit stay in one line; lists of them may go on in the next. */
function unbroken(text: string): string {
  return text
    .split(" · ")
    .map((part) => part.replaceAll(" ", "\u00a0"))
    .join(" · ");
}

const MARK_CLASSES = { "▲": "good", "▼": "bad", "=": "equal", "?": "unknown" } as const;

export function NumberGrid({ report }: { report: CompareReport }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable from the keyboard
    <section className="side-scroll" tabIndex={0} aria-label="Numbers of all runs" data-testid="numbers">
      <table className="number-grid">
        <thead>
          <tr>
            <th scope="col">
              <span className="sr-only">Quantity</span>
            </th>
            {report.members.map((member, at) => (
              <th key={member.run} scope="col">
                <MemberName member={member} />
                {at === 0 && <span className="muted"> baseline</span>}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {numberRows(report).map(({ title, tooltip, cells }) => (
            <tr key={title}>
              <th scope="row" title={tooltip}>
                {title}
              </th>
              {cells.map(({ text, detail, mark, tooltip: why }, at) => (
                <td key={report.members[at]?.run} title={why}>
                  <span className="mono">{unbroken(text)}</span>
                  {mark && <MarkWord mark={mark} />}
                  {detail && <span className="muted cell-detail">{detail}</span>}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
