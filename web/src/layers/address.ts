/** Addresses of the Layers page: a layer at a step, with the stretch around it. */

import type { Stat } from "../run/view";

interface LayerPlace {
  layer?: string | undefined;
  step?: number | null | undefined;
  stat?: Stat | undefined;
  range?: readonly [number, number] | null | undefined;
}

export function layersAddress(run: string, { layer, step, stat, range }: LayerPlace): string {
  const query = new URLSearchParams();
  if (range) query.set("r", `${Math.round(range[0])}-${Math.round(range[1])}`);
  if (layer) query.set("layer", layer);
  if (stat && stat !== "underflow") query.set("stat", stat);
  if (step !== null && step !== undefined) query.set("step", String(Math.round(step)));
  const text = query.toString();
  return `/runs/${run}/layers${text && `?${text}`}`;
}
