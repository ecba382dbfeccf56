/** Alerts in the words that the pages share, and where they lead. */

import type { AlertItem, NoticeItem, RuleItem, Severity, SilenceItem } from "../api/types";
import { formatCount, formatSpan } from "../lib/format";
import type { IconName } from "../ui/icons";

export const STATE_WORDS: Record<AlertItem["state"], string> = {
  pending: "Pending",
  firing: "Firing",
  resolved: "Resolved",
  no_data: "No data",
  error: "Cannot be judged",
};

/** Resolved ones are quiet, whatever they were. */
export function alertTone({ state, severity }: Pick<AlertItem, "state" | "severity">): Severity | "resolved" {
  return state === "resolved" ? "resolved" : severity;
}

export function alertIcon(alert: Pick<AlertItem, "state" | "severity">): IconName {
  if (alert.state === "error") return "unknown";
  if (alert.state === "pending") return "waiting";
  const tone = alertTone(alert);
  return tone === "resolved" ? "check" : tone;
}

/** "steps 1,200-1,215", or one of them. */
export function stepsOf({ first_step, last_step, resolved_step }: AlertItem): string {
  const last = resolved_step ?? last_step;
  return last > first_step
    ? `steps ${formatCount(first_step)}-${formatCount(last)}`
    : `step ${formatCount(first_step)}`;
}

/** How long it lasted, or lasts. */
export function lengthOf({ first_us, resolved_us }: AlertItem, nowMs: number): string {
  return formatSpan(Math.max(0, (resolved_us ?? nowMs * 1000) - first_us) / 1e6);
}

/** What became of its notifications, in a few words; empty: there was none. */
export function noticeWords(notices: NoticeItem[]): { text: string; isFailed: boolean } {
  const names = (state: NoticeItem["state"][]) => [
    ...new Set(notices.filter((notice) => state.includes(notice.state)).map(({ channel_name }) => channel_name)),
  ];
  const failed = names(["failed"]);
  if (failed.length > 0) return { text: `Could not be sent to ${failed.join(", ")}`, isFailed: true };
  const waiting = names(["waiting", "sending"]);
  if (waiting.length > 0) return { text: `Being sent to ${waiting.join(", ")}`, isFailed: false };
  const sent = names(["sent"]);
  return { text: sent.length > 0 ? `Sent to ${sent.join(", ")}` : "", isFailed: false };
}

/** Whether it mutes a whole run. */
export function isMute({ rule, run, layer }: SilenceItem): boolean {
  return run !== "" && rule === "" && layer === "";
}

/** What keeps an alert quiet now, in a few words. */
export function silenceWords(silence: SilenceItem, nowMs: number): string {
  const { until_us } = silence;
  const what = isMute(silence) ? "Run muted" : "Silenced";
  if (until_us === null) return `${what} until it is lifted`;
  const left_s = until_us / 1e6 - nowMs / 1000;
  return left_s > 0 ? `${what} for another ${formatSpan(left_s)}` : `${what} until now`;
}

/** A rule's life in a few words: "fires on 2", "pending", "quiet". */
export function ruleWords({ rule, firing, pending, error }: RuleItem): string {
  if (!rule.enabled) return "Off";
  if (firing > 0) return `Firing: ${formatCount(firing)}`;
  if (error) return "Cannot be judged";
  return pending > 0 ? `Pending: ${formatCount(pending)}` : "Quiet";
}
