/** Tells a screen reader what changed: verdict, skips and state at most every ten seconds, a run that turns critical at once. */

import { useEffect, useRef, useState } from "react";
import type { RunSummary } from "../api/types";
import { formatCount } from "../lib/format";

const EVERY_MS = 10_000;

export function Announcer({ summary }: { summary: RunSummary }) {
  // Not the step: it changes all the time and says nothing about health.
  const text = `${summary.health.word}, ${formatCount(summary.skips.total)} skips, ${summary.state_text}`;
  const newest = useRef(text);
  newest.current = text;
  const [said, setSaid] = useState("");
  useEffect(() => {
    // What was there when the page opened is read like any text; only what comes later is announced.
    let before = newest.current;
    const timer = setInterval(() => {
      if (newest.current !== before) setSaid(newest.current);
      before = newest.current;
    }, EVERY_MS);
    return () => clearInterval(timer);
  }, []);

  const isCritical = summary.health.severity === "critical";
  const openedCritical = useRef(isCritical);
  return (
    <>
      <span className="sr-only" aria-live="polite">
        {said}
      </span>
      <span className="sr-only" role="alert">
        {isCritical && !openedCritical.current
          ? `${summary.name}: ${summary.health.reasons[0] ?? summary.health.word}`
          : ""}
      </span>
    </>
  );
}
