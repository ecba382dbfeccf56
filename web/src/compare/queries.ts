/** Saved comparisons: asking for them and changing them. */

import { queryOptions, useMutation, useQueryClient } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import type { SaveComparison } from "../api/types";

const COMPARISONS = ["comparisons"] as const;

export const comparisonsQuery = queryOptions({
  queryKey: [...COMPARISONS, "all"],
  queryFn: () => unwrap(api.GET("/api/v1/comparisons")),
});

export const comparisonQuery = (id: string) =>
  queryOptions({
    queryKey: [...COMPARISONS, "one", id],
    queryFn: () => unwrap(api.GET("/api/v1/comparisons/{comparison}", { params: { path: { comparison: id } } })),
  });

/** @property id null for a new one. */
export interface Saving {
  id: string | null;
  body: SaveComparison;
}

export function useSaveComparison() {
  const cache = useQueryClient();
  return useMutation({
    mutationFn: ({ id, body }: Saving) =>
      id === null
        ? unwrap(api.POST("/api/v1/comparisons", { body }))
        : unwrap(api.PUT("/api/v1/comparisons/{comparison}", { params: { path: { comparison: id } }, body })),
    onSuccess: (saved) => {
      cache.setQueryData(comparisonQuery(saved.id).queryKey, saved);
      return cache.invalidateQueries({ queryKey: comparisonsQuery.queryKey });
    },
  });
}

export function useDeleteComparison() {
  const cache = useQueryClient();
  return useMutation({
    mutationFn: (id: string) =>
      unwrap(api.DELETE("/api/v1/comparisons/{comparison}", { params: { path: { comparison: id } } })),
    onSuccess: (_, id) => {
      cache.removeQueries({ queryKey: comparisonQuery(id).queryKey });
      return cache.invalidateQueries({ queryKey: comparisonsQuery.queryKey });
    },
  });
}
