/** Where things lie on a small chart of one compared number: no element, no colour. */

import type { Num } from "../api/types";

export interface Series {
  steps: readonly number[];
  low: readonly Num[];
  high: readonly Num[];
}

export interface Area {
  width: number;
  height: number;
}

export interface Scale {
  isLog: boolean;
  /** At the foot and the top of the chart. */
  bottom: number;
  top: number;
}

/** From this ratio on, positive values are told apart only on a log scale. */
const LOG_FROM = 200;
/** Room above and below what is drawn. */
const MARGIN_SHARE = 0.08;

function finite(values: readonly Num[]): number[] {
  return values.filter((value): value is number => typeof value === "number");
}

/** The vertical scale that holds every value and every level. */
export function scaleFor({ low, high }: Pick<Series, "low" | "high">, levels: readonly number[]): Scale {
  const values = [...finite(low), ...finite(high), ...levels];
  if (values.length === 0) return { isLog: false, bottom: 0, top: 1 };
  // Not spread into the arguments of a call: there can be thousands.
  let bottom = values.reduce((a, b) => Math.min(a, b));
  let top = values.reduce((a, b) => Math.max(a, b));
  const isLog = bottom > 0 && top / bottom > LOG_FROM;
  if (isLog) {
    const room = MARGIN_SHARE * Math.log(top / bottom);
    return { isLog, bottom: bottom * Math.exp(-room), top: top * Math.exp(room) };
  }
  // A number that is never negative stands on zero, so that its height says how much it is.
  if (bottom >= 0 && bottom < top / 2) bottom = 0;
  if (bottom === top) {
    const room = Math.abs(top) || 1;
    return { isLog, bottom: bottom === 0 ? 0 : bottom - room / 2, top: top + room / 2 };
  }
  const room = MARGIN_SHARE * (top - bottom);
  if (bottom !== 0) bottom -= room;
  top += room;
  return { isLog, bottom, top };
}

/** The largest value there is; null where there is none. */
export function largest({ high }: Pick<Series, "high">): number | null {
  const values = finite(high);
  return values.length === 0 ? null : values.reduce((a, b) => Math.max(a, b));
}

export function yOf(value: number, { isLog, bottom, top }: Scale, { height }: Area): number {
  const share = isLog
    ? Math.log(Math.max(value, bottom) / bottom) / Math.log(top / bottom)
    : (value - bottom) / (top - bottom);
  return round(height * (1 - Math.min(1, Math.max(0, share))));
}

export function xOf(step: number, [first, last]: readonly [number, number], { width }: Area): number {
  const share = last > first ? (step - first) / (last - first) : 0.5;
  return round(width * Math.min(1, Math.max(0, share)));
}

function round(px: number): number {
  return Math.round(px * 10) / 10;
}

/** The stretch of values as one outline per unbroken part; what is not finite breaks it. */
export function outline(series: Series, span: readonly [number, number], scale: Scale, area: Area): string {
  const parts: string[] = [];
  let upper: string[] = [];
  let lower: string[] = [];
  const close = () => {
    if (upper.length > 0) parts.push(`M${[...upper, ...lower.reverse()].join("L")}Z`);
    upper = [];
    lower = [];
  };
  for (const [at, step] of series.steps.entries()) {
    const low = series.low[at];
    const high = series.high[at];
    if (typeof low !== "number" || typeof high !== "number") {
      close();
      continue;
    }
    const x = xOf(step, span, area);
    upper.push(`${x} ${yOf(high, scale, area)}`);
    lower.push(`${x} ${yOf(low, scale, area)}`);
  }
  close();
  return parts.join("");
}
