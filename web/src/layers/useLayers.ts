/** The layer tree of the stretch that is looked at, fetched again as sketches come in. */

import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { layersKey, layersQuery } from "../api/queries";
import type { Window } from "../api/types";

/** Sketches can come many times a second; a tree that is rebuilt faster than it can be read helps nobody. */
const EVERY_MS = 2000;

export function useLayers(run: string, { x, first, last, stat }: Window, numFrames: number) {
  const cache = useQueryClient();
  const answer = useQuery(layersQuery(run, { x, first, last, stat }));
  const asked = useRef({ numFrames, atMs: 0 });
  useEffect(() => {
    if (asked.current.numFrames === numFrames) return;
    const waitMs = Math.max(0, asked.current.atMs + EVERY_MS - performance.now());
    const timer = setTimeout(() => {
      asked.current = { numFrames, atMs: performance.now() };
      cache.invalidateQueries({ queryKey: layersKey(run) });
    }, waitMs);
    return () => clearTimeout(timer);
  }, [cache, run, numFrames]);
  return answer;
}
