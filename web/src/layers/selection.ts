/** Which layer, step, statistic and view of the gradient the address says, and how to change them. */

import { setQuery } from "../lib/router";
import type { Stat, View } from "../run/view";

/** Choosing a layer makes an entry for Back: it is the page's subject. */
export function setLayer(layer: string): void {
  setQuery({ layer }, { push: true });
}

export function setStep(step: number | null): void {
  setQuery({ step: step === null ? null : String(Math.round(step)) });
}

export function setStat(stat: Stat): void {
  setQuery({ stat: stat === "underflow" ? null : stat });
}

/** Whether a run's own view is as FP16 sees it: where it computes in FP16. */
export function seenByDefault(precisionRole: string): boolean {
  return precisionRole === "fp16";
}

/** What is drawn for a wish, which may be to leave it to the run. */
export function drawnGradient(gradient: View["gradient"], precisionRole: string): "seen" | "true" {
  if (gradient !== "auto") return gradient;
  return seenByDefault(precisionRole) ? "seen" : "true";
}

/** The run's own view leaves no trace in the address. */
export function setGradient(gradient: "seen" | "true", precisionRole: string): void {
  setQuery({ u: gradient === drawnGradient("auto", precisionRole) ? null : gradient });
}
