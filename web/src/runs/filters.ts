/** Filters and order of the Runs table, as they stand in the URL. */

import type { RunSummary } from "../api/types";
import { setQuery } from "../lib/router";

export const FILTER_KEYS = ["project", "precision", "state", "tag"] as const;
export type FilterKey = (typeof FILTER_KEYS)[number];

export interface Filters {
  search: string;
  chosen: Record<FilterKey, string[]>;
}

export function parseFilters(query: URLSearchParams): Filters {
  const list = (key: FilterKey) => query.getAll(key);
  return {
    search: query.get("q") ?? "",
    chosen: { project: list("project"), precision: list("precision"), state: list("state"), tag: list("tag") },
  };
}

/** Writes one filter. Repeated keys, because names may hold commas. */
export function setFilter(key: FilterKey, values: string[]): void {
  setQuery({ [key]: values });
}

export function clearFilters(): void {
  setQuery({ q: null, project: null, precision: null, state: null, tag: null });
}

/** Every word occurs in name, project, id or a tag. */
export function matchesSearch(run: RunSummary, search: string): boolean {
  const text = [run.name, run.project, run.id, ...run.tags].join(" ").toLowerCase();
  return search
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}

export function isFiltered({ search, chosen }: Filters): boolean {
  return search.trim() !== "" || FILTER_KEYS.some((key) => chosen[key].length > 0);
}

export function applyFilters(runs: RunSummary[], { search, chosen }: Filters): RunSummary[] {
  const oneOf = (values: string[], value: string) => values.length === 0 || values.includes(value);
  return runs.filter(
    (run) =>
      oneOf(chosen.project, run.project) &&
      oneOf(chosen.precision, run.precision) &&
      oneOf(chosen.state, run.state) &&
      chosen.tag.every((tag) => run.tags.includes(tag)) &&
      matchesSearch(run, search),
  );
}
