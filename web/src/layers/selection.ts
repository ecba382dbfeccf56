/** Which layer, step, statistic and view of the gradient the address says, and how to change them. */

import { setQuery } from "../lib/router";
import type { Stat } from "../run/view";

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

/** The run's own view, which the server knows, leaves no trace in the address. */
export function setGradient(gradient: "seen" | "true", own: "seen" | "true"): void {
  setQuery({ u: gradient === own ? null : gradient });
}
