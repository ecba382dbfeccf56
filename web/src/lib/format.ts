/** Numbers and times as text, after the rules of docs/ui.md. What is missing is "–"; NaN and infinities are written out. */

import type { Num } from "../api/types";

export const MISSING = "–";

const SUPERSCRIPTS: Record<string, string> = {
  "0": "⁰",
  "1": "¹",
  "2": "²",
  "3": "³",
  "4": "⁴",
  "5": "⁵",
  "6": "⁶",
  "7": "⁷",
  "8": "⁸",
  "9": "⁹",
  "-": "⁻",
  ".": "·",
};

function nonFinite(value: Num | undefined): string | null {
  if (value === null || value === undefined) return MISSING;
  if (value === "NaN") return "NaN";
  if (value === "Infinity") return "+Inf";
  if (value === "-Infinity") return "-Inf";
  return null;
}

/** 12,400. */
export function formatCount(value: number | null | undefined): string {
  return value === null || value === undefined ? MISSING : value.toLocaleString("en-US");
}

/** 1.24k, 3.5M: three significant digits. */
export function formatCompact(value: Num | undefined): string {
  const word = nonFinite(value);
  if (word !== null) return word;
  const number = value as number;
  const size = Math.abs(number);
  const [divisor, suffix] =
    size >= 999.5e6 ? [1e9, "G"] : size >= 999.5e3 ? [1e6, "M"] : size >= 999.5 ? [1e3, "k"] : [1, ""];
  return `${Number((number / divisor).toPrecision(3))}${suffix}`;
}

/** Four significant digits: 0.1234, 2.303, 1.230e-5. */
export function formatLoss(value: Num | undefined): string {
  const word = nonFinite(value);
  if (word !== null) return word;
  const number = value as number;
  const size = Math.abs(number);
  if (number !== 0 && (size < 1e-3 || size >= 1e5)) return number.toExponential(3).replace("e+", "e");
  return size >= 1000 ? number.toFixed(0) : number.toPrecision(4);
}

/** A loss scale as a power of two, with what a screen reader says. */
export function formatScale(value: Num | undefined): { text: string; label: string } {
  const word = nonFinite(value);
  if (word !== null) return { text: word, label: word === MISSING ? "no loss scale" : word };
  const number = value as number;
  if (number <= 0) return { text: String(number), label: String(number) };
  const exponent = Math.log2(number);
  const text = Number.isInteger(exponent) ? String(exponent) : exponent.toFixed(1);
  const raised = [...text].map((character) => SUPERSCRIPTS[character] ?? character).join("");
  return { text: `2${raised}`, label: `2 to the power of ${text}, ${number.toLocaleString("en-US")}` };
}

/** A share 0..1 as percent: "0.05%", "< 0.01%", exact zero as "0". */
export function formatShare(share: number): string {
  if (share === 0) return "0";
  if (share < 1e-4) return "< 0.01%";
  return `${Number((share * 100).toPrecision(3))}%`;
}

export function formatBytes(value: Num | undefined): string {
  const word = nonFinite(value);
  if (word !== null) return word;
  let number = value as number;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(number) < 1024) return `${Number(number.toPrecision(3))} ${unit}`;
    number /= 1024;
  }
  return `${Number(number.toPrecision(3))} TiB`;
}

/** How long ago, in one unit: "12 s", "5 min", "3 h", "9 d". */
export function formatAge(fromUs: number, nowMs: number): string {
  const seconds = Math.max(0, Math.round(nowMs / 1000 - fromUs / 1e6));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

/** A span in at most two units: "38 ms", "4 s", "3 min", "2 h 14 min". */
export function formatSpan(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes / 60} h`;
}

/** Local date and time, with UTC for the tooltip. */
export function formatTime(timeUs: number): { text: string; utc: string } {
  const date = new Date(timeUs / 1000);
  return {
    text: date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" }),
    utc: `${date.toISOString().replace("T", " ").slice(0, 19)} UTC`,
  };
}

/** A long name with its middle left out, so that both the block and the leaf can be read. */
export function shortenMiddle(name: string, maxLength = 32): string {
  if (name.length <= maxLength) return name;
  const tail = Math.ceil((maxLength - 1) * 0.6);
  return `${name.slice(0, maxLength - 1 - tail)}…${name.slice(-tail)}`;
}

/** "768 × 3,072"; a single number is written "scalar". */
export function formatShape(shape: number[]): string {
  return shape.length === 0 ? "scalar" : shape.map((size) => formatCount(size)).join(" × ");
}
