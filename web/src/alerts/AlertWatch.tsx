/** What tells of new alerts on every page: a screen reader at once when they are critical, and the browser's own notifications
 * for those who asked for them. */

import { useEffect, useRef, useState } from "react";
import type { AlertItem } from "../api/types";
import { getPrefs } from "../lib/prefs";
import { navigate } from "../lib/router";
import { newlyFiring, onNews } from "./news";

/** A burst is one notification. */
const MOST_APART = 3;

export function AlertWatch() {
  const known = useRef(new Set<string>());
  const [said, setSaid] = useState({ critical: "", other: "" });
  useEffect(
    () =>
      onNews((changed) => {
        const fresh = newlyFiring(changed, known.current);
        for (const { id } of fresh) known.current.add(id);
        if (fresh.length === 0) return;
        const words = (alerts: AlertItem[]) =>
          alerts.map(({ text, run_name }) => `${text}, run ${run_name}`).join("; ");
        const critical = fresh.filter(({ severity }) => severity === "critical");
        setSaid({
          critical: critical.length > 0 ? `Critical alert: ${words(critical)}` : "",
          other: critical.length > 0 ? "" : `Alert: ${words(fresh)}`,
        });
        if (getPrefs().notifications) showNotifications(fresh);
      }),
    [],
  );
  return (
    <>
      <span className="sr-only" role="alert">
        {said.critical}
      </span>
      <span className="sr-only" aria-live="polite">
        {said.other}
      </span>
    </>
  );
}

function showNotifications(fresh: AlertItem[]): void {
  if (!canNotify() || Notification.permission !== "granted") return;
  const first = fresh[0];
  if (first && fresh.length > MOST_APART) {
    show(`${fresh.length} alerts fire`, fresh.map(({ text }) => text).join("\n"), "burst", "/alerts");
    return;
  }
  for (const alert of fresh) {
    show(`${alert.severity}: ${alert.run_name}`, alert.text, alert.id, alert.link);
  }
}

function show(title: string, body: string, tag: string, place: string): void {
  // The tag: of several open pages one shows it.
  const shown = new Notification(title, { body, tag: `halfscope ${tag}` });
  shown.onclick = () => {
    window.focus();
    navigate(place);
    shown.close();
  };
}

/** Browsers have them only where nobody in between can change the page: https, or this machine. */
export function canNotify(): boolean {
  return typeof Notification !== "undefined" && window.isSecureContext;
}
