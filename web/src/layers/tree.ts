/** The layer tree as rows: which are seen, where a key leads, what a search leaves. No React, no requests.
 *
 * Invariant: rows are in forward order, and a node's parent stands above it wherever the node is seen.
 */

import type { LayerNode } from "../api/types";

export interface TreeItem {
  node: LayerNode;
  /** Place of the parent among all items; -1 for a child of the root. */
  parent: number;
  /** First place after everything below it. */
  end: number;
  /** Among its siblings, from 1. */
  position: number;
  siblings: number;
}

export interface TreeRow {
  /** Place among all items. */
  at: number;
  item: TreeItem;
  hasChildren: boolean;
  isOpen: boolean;
}

/** Nodes in preorder, with what their order and depth say about who belongs to whom. */
export function indexNodes(nodes: LayerNode[]): TreeItem[] {
  // The root has no row: it would only say the name of the run once more.
  const shown = nodes.filter(({ name }) => name !== "");
  const items: TreeItem[] = shown.map((node) => ({ node, parent: -1, end: shown.length, position: 1, siblings: 1 }));
  const path: number[] = [];
  const children = new Map<number, number[]>();
  items.forEach((item, at) => {
    while (path.length > 0 && depthAt(items, path.at(-1)) >= item.node.depth) {
      const closed = items[path.pop() as number];
      if (closed) closed.end = at;
    }
    item.parent = path.at(-1) ?? -1;
    const family = children.get(item.parent) ?? [];
    family.push(at);
    children.set(item.parent, family);
    path.push(at);
  });
  for (const family of children.values()) {
    family.forEach((at, place) => {
      const item = items[at];
      if (item) Object.assign(item, { position: place + 1, siblings: family.length });
    });
  }
  return items;
}

function depthAt(items: TreeItem[], at: number | undefined): number {
  return at === undefined ? -1 : (items[at]?.node.depth ?? -1);
}

/** Names of the modules that are open at first. */
export function openAtFirst(items: TreeItem[]): Set<string> {
  return new Set(items.filter(({ node }) => node.open).map(({ node }) => node.name));
}

/** Names of everything above a node. */
export function ancestors(items: TreeItem[], name: string): string[] {
  const names: string[] = [];
  let at = items.find(({ node }) => node.name === name)?.parent ?? -1;
  while (at >= 0) {
    const item = items[at];
    if (!item) break;
    names.push(item.node.name);
    at = item.parent;
  }
  return names;
}

/** The rows that are seen, in order. A search shows what it finds with all that is above, whatever is closed. */
export function visibleRows(items: TreeItem[], open: ReadonlySet<string>, search: string): TreeRow[] {
  const wanted = search.trim().toLowerCase();
  const kept = wanted === "" ? null : findKept(items, wanted);
  const rows: TreeRow[] = [];
  for (let at = 0; at < items.length; at++) {
    const item = items[at];
    if (!item || (kept && !kept.has(at))) continue;
    const hasChildren = item.end > at + 1;
    const isOpen = hasChildren && (kept !== null || open.has(item.node.name));
    rows.push({ at, item, hasChildren, isOpen });
    if (hasChildren && !isOpen) at = item.end - 1;
  }
  return rows;
}

function findKept(items: TreeItem[], wanted: string): Set<number> {
  const kept = new Set<number>();
  items.forEach(({ node, parent }, at) => {
    if (!node.name.toLowerCase().includes(wanted)) return;
    kept.add(at);
    for (let above = parent; above >= 0 && !kept.has(above); above = items[above]?.parent ?? -1) kept.add(above);
  });
  return kept;
}

/** How many layers (not modules) a search finds. */
export function countFound(items: TreeItem[], search: string): number {
  const wanted = search.trim().toLowerCase();
  return items.filter(({ node }) => node.kind === "parameter" && node.name.toLowerCase().includes(wanted)).length;
}

/** What a key does to the tree: another active row, a module to open or close, the active one to select. */
export type TreeMove = { active: number } | { toggle: string } | { select: string };

/** @returns null for a key that is none of the tree's, or that leads nowhere. */
export function moveBy(key: string, rows: TreeRow[], active: number): TreeMove | null {
  const row = rows[active];
  const last = rows.length - 1;
  if (!row) return null;
  const to = (place: number): TreeMove => ({ active: Math.min(last, Math.max(0, place)) });
  switch (key) {
    case "ArrowDown":
      return to(active + 1);
    case "ArrowUp":
      return to(active - 1);
    case "Home":
      return to(0);
    case "End":
      return to(last);
    case "PageDown":
      return to(active + PAGE_ROWS);
    case "PageUp":
      return to(active - PAGE_ROWS);
    case "ArrowRight":
      if (!row.hasChildren) return null;
      return row.isOpen ? to(active + 1) : { toggle: row.item.node.name };
    case "ArrowLeft": {
      if (row.isOpen) return { toggle: row.item.node.name };
      const parent = rows.findIndex(({ at }) => at === row.item.parent);
      return parent >= 0 ? to(parent) : null;
    }
    case "Enter":
    case " ":
      return { select: row.item.node.name };
    default:
      return null;
  }
}

const PAGE_ROWS = 10;

/** What the server takes of rows, and how long a request may get with their names in it. */
const MOST_ROWS = 400;
const MOST_CHARS = 16_000;

/** Names of the rows that the heatmap shows: from the top, as many as fit a request. */
export function heatmapRows(rows: TreeRow[]): string[] {
  const names: string[] = [];
  let chars = 0;
  for (const { item } of rows.slice(0, MOST_ROWS)) {
    chars += encodeURIComponent(item.node.name).length + "&rows=".length;
    if (chars > MOST_CHARS) break;
    names.push(item.node.name);
  }
  return names;
}

const GRAVITY = { critical: 4, warning: 3, info: 2, ok: 1, unknown: 0 } as const;

/** The layers that are worst off, for where a tree has no room: by severity, then as the server ordered them. */
export function worstLayers(items: TreeItem[], defaultLayer: string, most: number): LayerNode[] {
  const leaves = items.map(({ node }) => node).filter(({ kind }) => kind === "parameter");
  const rank = ({ name, severity }: LayerNode) => GRAVITY[severity ?? "ok"] + (name === defaultLayer ? 0.5 : 0);
  return [...leaves].sort((a, b) => rank(b) - rank(a)).slice(0, most);
}

/** Names of some nodes as the heatmap has them: from top to bottom as in the tree. */
export function inTreeOrder(items: TreeItem[], nodes: LayerNode[]): string[] {
  const wanted = new Set(nodes.map(({ name }) => name));
  return items.filter(({ node }) => wanted.has(node.name)).map(({ node }) => node.name);
}
