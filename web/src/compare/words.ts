/** Numbers of a comparison in words: intervals, ratios, and which way is better. */

import type { CompareReport, Cost, Estimate, Quality, Stability } from "../api/types";
import {
  formatBytes,
  formatCompact,
  formatCount,
  formatLoss,
  formatScale,
  formatShare,
  formatSpan,
  MISSING,
} from "../lib/format";

export type Outcome = CompareReport["outcome"];

/** A sign and a word, never a colour alone. */
export interface Mark {
  sign: "▲" | "▼" | "=" | "?";
  word: string;
}

export interface Cell {
  text: string;
  /** A second line. */
  detail?: string | undefined;
  mark?: Mark | undefined;
  tooltip?: string | undefined;
}

/** One quantity of all members, the baseline's first. */
export interface Row {
  title: string;
  tooltip?: string;
  cells: Cell[];
}

export const OUTCOMES: Record<Outcome, Mark> = {
  equal: { sign: "=", word: "equal within noise" },
  worse: { sign: "▼", word: "worse" },
  better: { sign: "▲", word: "better" },
  unknown: { sign: "?", word: "cannot be told" },
};

/** "1.9 to 2.1"; empty where there is no interval. */
export function intervalWords({ low, high }: Estimate, format: (value: number) => string): string {
  return low == null || high == null ? "" : `${format(low)} to ${format(high)}`;
}

/** 0.5×, 1.94×, 24×, 1.70e-6×. */
export function formatRatio(ratio: number): string {
  return `${ratio > 0 && ratio < 1e-3 ? ratio.toExponential(2) : formatCompact(ratio)}×`;
}

/** "+1.2%", "-0.3%". */
export function formatChange(share: number): string {
  const size = formatShare(Math.abs(share));
  // Of what is less than can be written the side says nothing.
  return share === 0 ? "0%" : size.startsWith("<") ? size : `${share > 0 ? "+" : "-"}${size}`;
}

/** Whether a ratio is on one side of 1 with its whole interval. */
function sideOf({ value, low, high }: Estimate): -1 | 0 | 1 {
  if ((low ?? value) > 1) return 1;
  return (high ?? value) < 1 ? -1 : 0;
}

/** Every row that at least one member has something in. */
export function numberRows(report: CompareReport): Row[] {
  const rows = [...qualityRows(report), ...costRows(report), ...stabilityRows(report.stability)];
  return rows.filter(({ cells }) => cells.some(({ text }) => text !== MISSING));
}

const NOTHING: Cell = { text: MISSING };

function qualityRows({ quality, verdicts, options }: CompareReport): Row[] {
  /** Never more certain than the verdict, which knows what else the runs differ in. */
  const outcomeOf = ({ run, outcome }: Quality): Outcome =>
    verdicts.some((verdict) => verdict.run === run && verdict.outcome === "unknown") ? "unknown" : outcome;
  return [
    {
      title: `Final ${options.metric ?? ""}`,
      tooltip: "Mean over the last tenth of what both have",
      cells: quality.map((one) => ({
        text: one.final_words || (one.final ? formatLoss(one.final.value) : MISSING),
        detail: one.difference ? differenceWords(one) : undefined,
        mark: one.difference || one.reason ? OUTCOMES[outcomeOf(one)] : undefined,
        tooltip: one.reason || undefined,
      })),
    },
    {
      title: "Leaves the noise",
      tooltip: "The step from which the difference stays outside of the noise band",
      cells: quality.map(({ first_step }) =>
        first_step == null ? NOTHING : { text: `step ${formatCount(first_step)}` },
      ),
    },
  ];
}

function differenceWords({ difference, noise_share, absolute, noise_absolute }: Quality): string {
  if (!difference) return "";
  if (absolute != null) {
    const band = noise_absolute == null ? "" : `, noise ±${formatLoss(noise_absolute)}`;
    return `${absolute > 0 ? "+" : ""}${formatLoss(absolute)}${band}`;
  }
  const size = noise_share == null ? "" : formatShare(noise_share);
  const noise = size === "" ? "" : `, noise ${size.startsWith("<") ? "" : "±"}${size}`;
  return `${formatChange(difference.value)}${noise}`;
}

function costRows({ cost, fairness }: CompareReport): Row[] {
  /** What makes a comparison of speed, or of memory, one of something else. */
  const confounder = ({ confounded_by }: Cost, what: "speed" | "memory") =>
    fairness.items.find(({ id, confounds }) => confounded_by.includes(id) && confounds.includes(what))?.title;
  const against = (one: Cost, what: "speed" | "memory", mark: Mark): Pick<Cell, "mark" | "tooltip"> => {
    const title = confounder(one, what);
    return title
      ? { mark: { sign: "?", word: `not comparable: ${title.toLowerCase()}` }, tooltip: `${title} differs` }
      : { mark };
  };
  return [
    {
      title: "Throughput",
      tooltip: "Median without warm-up, with its 95% interval",
      cells: cost.map(({ throughput, throughput_unit }) =>
        throughput
          ? {
              text: `${formatCompact(throughput.value)} ${throughput_unit}`,
              detail: intervalWords(throughput, formatCompact),
            }
          : NOTHING,
      ),
    },
    {
      title: "Speed",
      tooltip: "Throughput against the baseline's, with its 95% interval",
      cells: cost.map((one) => {
        if (!one.speedup) return NOTHING;
        const mark = (
          [
            { sign: "▼", word: "slower" },
            { sign: "=", word: "no difference" },
            { sign: "▲", word: "faster" },
          ] as const
        )[sideOf(one.speedup) + 1];
        const shown = against(one, "speed", mark ?? OUTCOMES.unknown);
        return {
          text: formatRatio(one.speedup.value),
          detail: intervalWords(one.speedup, formatRatio),
          ...shown,
          tooltip: [shown.tooltip, ...one.because].filter(Boolean).join("\n"),
        };
      }),
    },
    {
      title: "Step time",
      tooltip: "Median; how far the 5th and 95th percentile are apart, as a share of it",
      cells: cost.map(({ step_s, step_spread }) =>
        step_s
          ? {
              text: formatStep(step_s.value),
              detail: step_spread == null ? undefined : `spread ${formatShare(step_spread)}`,
            }
          : NOTHING,
      ),
    },
    {
      title: "Time to the baseline's level",
      tooltip: "Training time until the metric was as good as the baseline's final level",
      cells: cost.map(({ time_to_baseline_s, baseline_time_s }, at) => {
        const seconds = at === 0 ? baseline_time_s : time_to_baseline_s;
        return seconds == null
          ? at > 0 && baseline_time_s != null
            ? { text: "not reached" }
            : NOTHING
          : { text: formatSpan(seconds) };
      }),
    },
    {
      title: "Peak memory",
      cells: cost.map((one, at) => {
        if (one.peak_memory_bytes == null) return NOTHING;
        const ratio = one.memory_ratio;
        const mark: Mark =
          ratio == null || Math.abs(ratio - 1) < (LEAST_MEMORY_CHANGE[one.memory_of] ?? 0)
            ? { sign: "=", word: "no difference" }
            : ratio < 1
              ? { sign: "▲", word: "less" }
              : { sign: "▼", word: "more" };
        return {
          text: formatBytes(one.peak_memory_bytes),
          detail: `${one.memory_of}${ratio == null || at === 0 ? "" : `, ${formatRatio(ratio)}`}`,
          ...(at > 0 && ratio != null && against(one, "memory", mark)),
        };
      }),
    },
    {
      title: "Weights, gradients, optimizer",
      cells: cost.map(({ parameter_bytes, gradient_bytes, optimizer_state_bytes }) => {
        const parts = [parameter_bytes, gradient_bytes, optimizer_state_bytes];
        return parts.every((part) => part == null)
          ? NOTHING
          : { text: parts.map((part) => formatBytes(part)).join(" · ") };
      }),
    },
  ];
}

/** Below this, allocators differ from one run to the next; of a process, what else it holds does. */
const LEAST_MEMORY_CHANGE: Record<string, number> = { device: 0.01, process: 0.05 };

function formatStep(seconds: number): string {
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(3))} ms` : formatSpan(seconds);
}

function stabilityRows(stability: readonly Stability[]): Row[] {
  const counted = (title: string, pick: (one: Stability) => number, word?: string): Row => {
    const [baseline] = stability;
    return {
      title,
      cells: stability.map((one) => {
        const isWorse = word !== undefined && baseline !== undefined && pick(one) > pick(baseline);
        return { text: formatCount(pick(one)), mark: isWorse ? { sign: "▼", word } : undefined };
      }),
    };
  };
  return [
    {
      title: "Skipped steps",
      cells: stability.map(({ skips, num_steps }) => {
        const kinds = Object.entries(skips).filter(([, count]) => count > 0);
        const total = kinds.reduce((sum, [, count]) => sum + count, 0);
        return {
          text: total === 0 ? "0" : `${formatCount(total)} · ${formatShare(total / Math.max(1, num_steps))}`,
          detail: kinds.map(([kind, count]) => `${formatCount(count)} ${kind}`).join(", ") || undefined,
        };
      }),
    },
    counted("Longest streak of skips", (one) => one.longest_streak),
    counted("NaN/Inf caught", (one) => one.nonfinite_caught),
    counted("NaN/Inf applied", (one) => one.nonfinite_applied, "worse"),
    {
      title: "Loss scale",
      cells: stability.map(({ scale_min, scale_max, scale_last }) =>
        scale_min == null || scale_max == null
          ? NOTHING
          : {
              text:
                scale_min === scale_max
                  ? formatScale(scale_min).text
                  : `${formatScale(scale_min).text} to ${formatScale(scale_max).text}`,
              detail: scale_last == null || scale_min === scale_max ? undefined : `now ${formatScale(scale_last).text}`,
            },
      ),
    },
  ];
}
