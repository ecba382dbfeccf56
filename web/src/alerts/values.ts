/** Numbers of rules as people read and type them: shares in percent, powers of two, what a unit means. */

import type { Num, RuleVocabulary } from "../api/types";
import { formatBytes, formatCompact, formatShare, formatSpan } from "../lib/format";

type Aggregation = RuleVocabulary["aggregations"][number];

/** What the number that is compared is measured in. */
export function comparedUnit(metricUnit: string, aggregation: Aggregation | undefined, isBySeconds: boolean): string {
  switch (aggregation?.unit) {
    case "share":
      return "share";
    case "":
      return "";
    case "per":
      return `${metricUnit === "share" ? "" : metricUnit}/${isBySeconds ? "s" : "step"}`;
    default:
      return metricUnit;
  }
}

/** A compared number in words, as the server words it in alerts. */
export function formatValue(value: Num, unit: string): string {
  if (typeof value === "number") {
    if (unit === "flag") return value > 0 ? "yes" : "no";
    if (unit === "share") return formatShare(Math.abs(value)).replace(/^/, value < 0 ? "-" : "");
    if (unit === "bytes") return formatBytes(value);
    if (unit === "s") return formatSpan(value);
  }
  const text = typeof value === "number" && value !== 0 && Math.abs(value) < 1e-3 ? tiny(value) : formatCompact(value);
  return unit === "" || unit === "1" || value === null ? text : `${text} ${unit}`;
}

function tiny(value: number): string {
  return value
    .toExponential(2)
    .replace("e+", "e")
    .replace(/\.?0+e/, "e");
}

/** What stands behind a field for such a number. */
export function fieldUnit(unit: string): string {
  return unit === "share" ? "%" : unit === "1" ? "" : unit;
}

/** A number for its field: percent for shares, everything else as it is. */
export function toField(value: number | null, unit: string): string {
  if (value === null) return "";
  // Twelve digits: what a factor of 100 adds in the last place is not the user's.
  return String(unit === "share" ? Number((value * 100).toPrecision(12)) : value);
}

/** What was typed; null for what is no number. Takes `2^10`, `1e-8`, `5%` and commas between thousands. */
export function fromField(text: string, unit: string): number | null {
  const plain = text.trim().replaceAll(",", "").replace(/%$/, "").trim();
  const [, base, power] = /^(\d+(?:\.\d+)?)\^(-?\d+(?:\.\d+)?)$/.exec(plain) ?? [];
  const value = base && power ? Number(base) ** Number(power) : plain === "" ? Number.NaN : Number(plain);
  if (!Number.isFinite(value)) return null;
  return unit === "share" ? Number((value / 100).toPrecision(12)) : value;
}
