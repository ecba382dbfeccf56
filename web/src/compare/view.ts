/** How runs are compared and looked at: the keys of the address. */

import { useMemo } from "react";
import type { CompareOptions, CompareReport } from "../api/types";
import { currentPlace, setQuery, usePlace } from "../lib/router";
import { setRange, type View } from "../run/view";

type Alignment = CompareReport["options"]["align"] & string;

export const ALIGNMENTS: readonly { id: Alignment; title: string }[] = [
  { id: "attempts", title: "step" },
  { id: "applied", title: "applied step" },
  { id: "samples", title: "samples seen" },
  { id: "tokens", title: "tokens seen" },
  { id: "time", title: "training time" },
];

export const TOLERANCES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05] as const;

export interface Chosen {
  /** The baseline first; empty: none is asked for. */
  runs: string[];
  options: CompareOptions;
  /** Run whose layers are held against the baseline's; empty: the first after it. */
  member: string;
  /** Over each other instead of side by side. */
  isOverlaid: boolean;
}

export function parseChosen(query: URLSearchParams): Chosen {
  const runs = (query.get("runs") ?? "").split(",").filter(Boolean);
  const metric = query.get("metric");
  const align = ALIGNMENTS.find(({ id }) => id === query.get("align"))?.id;
  const tolerance = Number(query.get("tol") ?? Number.NaN);
  return {
    runs: [...new Set(runs)],
    options: {
      ...(metric && { metric }),
      ...(align && { align }),
      ...(tolerance >= 0 && tolerance <= 1 && { tolerance }),
    },
    member: query.get("member") ?? "",
    isOverlaid: query.get("o") === "overlay",
  };
}

/** Options as they were answered, to be asked for again. */
export function optionsOf({ metric, align, tolerance_share: tolerance }: CompareReport["options"]): CompareOptions {
  return {
    ...(metric !== undefined && { metric }),
    ...(align !== undefined && { align }),
    ...(tolerance !== undefined && { tolerance }),
  };
}

export function useChosen(): Chosen {
  const { query } = usePlace();
  const text = query.toString();
  return useMemo(() => parseChosen(new URLSearchParams(text)), [text]);
}

/** Other runs beside each other; how they are compared and looked at stays. */
export function setRuns(runs: readonly string[]): void {
  setQuery({ runs: runs.join(",") }, { push: true });
}

export function setOptions({
  metric,
  align,
  tolerance,
}: { [Key in keyof CompareOptions]: CompareOptions[Key] | undefined }): void {
  setQuery({
    ...(metric !== undefined && { metric }),
    // A stretch of steps means nothing in seconds.
    ...(align !== undefined && { align, r: null }),
    ...(tolerance !== undefined && { tol: String(tolerance) }),
  });
}

/** Zooms: into whole steps or samples, or into as small a part of a second as can be told apart in the stretch. */
export function setStretch(range: View["range"], align: Alignment): void {
  if (!range || align !== "time") {
    setRange(range);
    return;
  }
  const decimals = Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(range[1] - range[0]))));
  setQuery({ r: range.map((end) => Number(end.toFixed(decimals))).join("-") }, { push: true });
}

export function setMember(member: string): void {
  setQuery({ member, layer: null });
}

export function setOverlaid(isOverlaid: boolean): void {
  setQuery({ o: isOverlaid ? "overlay" : null });
}

/** Gradients times the loss scale; runs of different scales compare without it. */
export function setSeen(isSeen: boolean): void {
  setQuery({ u: isSeen ? "seen" : null });
}

/** The present view of runs, as an address that needs nothing saved. */
export function addressOf(runs: readonly string[], options: CompareOptions): string {
  const [, search = ""] = currentPlace().split("?", 2);
  const query = new URLSearchParams(search);
  query.set("runs", runs.join(","));
  if (options.metric) query.set("metric", options.metric);
  if (options.align) query.set("align", options.align);
  if (options.tolerance !== undefined) query.set("tol", String(options.tolerance));
  return `/compare?${query.toString().replaceAll("%2C", ",")}`;
}
