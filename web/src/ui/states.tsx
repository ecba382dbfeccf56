/** What a page shows instead of its content, and the small pieces that many pages share. */

import type { ReactNode } from "react";
import { ApiError } from "../api/client";
import type { Chip, Health } from "../api/types";
import { shortenMiddle } from "../lib/format";
import { Link } from "../lib/router";
import { Icon, SEVERITY_ICON } from "./icons";

/** A page or panel that has nothing: what is the case, and what to do. */
export function EmptyState({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <section className="empty">
      <h2 className="title">{title}</h2>
      {children}
    </section>
  );
}

/** A failed request: message, request id and a way to try again. */
export function FailedState({ error, onRetry }: { error: Error; onRetry: () => void }) {
  const requestId = error instanceof ApiError ? error.requestId : "";
  return (
    <div className="failed" role="alert">
      <p>{error.message}</p>
      {requestId && (
        <p className="muted">
          Request <code>{requestId}</code>
        </p>
      )}
      <button type="button" className="button" onClick={onRetry}>
        Try again
      </button>
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p className="loading muted" role="status">
      Loading {what}…
    </p>
  );
}

/** The verdict in one word, with its icon; the reasons in the tooltip. */
export function HealthWord({ health }: { health: Health }) {
  const icon =
    health.word === "waiting" ? "waiting" : health.word === "unknown" ? "unknown" : SEVERITY_ICON[health.severity];
  return (
    <span className={`health severity-${health.severity}`} title={health.reasons.join("\n")}>
      <Icon name={icon} />
      <span className="health-word">{health.word}</span>
    </span>
  );
}

/** The number format as a chip; the role's colour as a mark in front, so that the word stays readable. */
export function PrecisionChip({ text, role }: { text: string; role: string }) {
  if (!text) return <span className="muted">–</span>;
  return (
    <span className="precision">
      {role && <span className="precision-mark" style={{ background: `var(--c-${role})` }} />}
      {text}
    </span>
  );
}

/** One piece of a sentence that the server worded; a link where it is about a page of its own. */
export function SentencePiece({ chip, to }: { chip: Chip; to?: string | undefined }) {
  const shown = chip.code ? shortenMiddle(chip.text) : chip.text;
  const label = chip.label || (shown === chip.text ? "" : chip.text);
  const text = label ? (
    <>
      <span aria-hidden="true">{shown}</span>
      <span className="sr-only">{label}</span>
    </>
  ) : (
    shown
  );
  return (
    <span
      className={`piece tone-${chip.tone}${chip.code ? " mono" : ""}`}
      title={chip.tooltip || (chip.code ? chip.text : undefined)}
    >
      {to ? <Link to={to}>{text}</Link> : text}
    </span>
  );
}
