/** The layers as a tree: forward order, worst value and spark per row, search, keys. Rows out of sight are not rendered. */

import { type KeyboardEvent, useEffect, useLayoutEffect, useRef, useState } from "react";
import type { LayerTree } from "../api/types";
import { formatCount, formatShape } from "../lib/format";
import { useKeys } from "../lib/keys";
import { Icon, SEVERITY_ICON } from "../ui/icons";
import { Spark } from "./Spark";
import { moveBy, type TreeRow } from "./tree";

interface LayerTreeViewProps {
  tree: LayerTree;
  rows: TreeRow[];
  /** Name of the layer or module that the charts show. */
  selected: string;
  onSelect: (name: string) => void;
  onToggle: (name: string) => void;
}

/** Rows rendered above and below what is seen. */
const SPARE_ROWS = 8;
const SPARK = { width: 56, height: 16 };
const INDENT_PX = 12;

export function LayerTreeView({ tree, rows, selected, onSelect, onToggle }: LayerTreeViewProps) {
  const box = useRef<HTMLDivElement>(null);
  const [activeName, setActiveName] = useState(selected);
  const named = rows.findIndex(({ item }) => item.node.name === activeName);
  const active = named >= 0 ? named : Math.max(0, nearestShown(rows, selected));
  const { first, last, rowPx } = useShownRows(box, rows.length);

  useEffect(() => setActiveName(selected), [selected]);
  useScrollTo(box, active, rowPx, rows);

  const act = (key: string): boolean => {
    const move = moveBy(key, rows, active);
    if (!move) return false;
    if ("active" in move) setActiveName(rows[move.active]?.item.node.name ?? "");
    else if ("toggle" in move) onToggle(move.toggle);
    else onSelect(move.select);
    return true;
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !act(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  };
  const step = (key: string) => {
    // The first press only brings the focus here, where the row that is meant can be seen.
    if (document.activeElement === box.current) act(key);
    else box.current?.focus();
  };
  useKeys({ j: () => step("ArrowDown"), k: () => step("ArrowUp") });

  return (
    <div
      ref={box}
      className="tree"
      role="tree"
      tabIndex={0}
      aria-label="Layers"
      aria-activedescendant={rows[active] ? rowId(rows[active]) : undefined}
      onKeyDown={onKeyDown}
      data-testid="layer-tree"
    >
      <div role="none" style={{ height: rows.length * rowPx, position: "relative" }}>
        {rows.slice(first, last).map((row, place) => (
          <Row
            key={row.at}
            row={row}
            tree={tree}
            top={(first + place) * rowPx}
            isActive={first + place === active}
            isSelected={row.item.node.name === selected}
            holdsSelected={!row.isOpen && row.hasChildren && isBelow(selected, row)}
            onSelect={() => {
              setActiveName(row.item.node.name);
              onSelect(row.item.node.name);
            }}
            onToggle={() => {
              setActiveName(row.item.node.name);
              onToggle(row.item.node.name);
            }}
          />
        ))}
      </div>
    </div>
  );
}

function isBelow(name: string, row: TreeRow): boolean {
  return name.startsWith(`${row.item.node.name}.`);
}

/** The row of a name, or the closed one that it is in. */
function nearestShown(rows: TreeRow[], name: string): number {
  return rows.findIndex((row) => row.item.node.name === name || (!row.isOpen && isBelow(name, row)));
}

function rowId(row: TreeRow): string {
  return `layer-row-${row.at}`;
}

interface RowProps {
  row: TreeRow;
  tree: LayerTree;
  top: number;
  isActive: boolean;
  isSelected: boolean;
  holdsSelected: boolean;
  onSelect: () => void;
  onToggle: () => void;
}

function Row({ row, tree, top, isActive, isSelected, holdsSelected, onSelect, onToggle }: RowProps) {
  const { node, position, siblings } = row.item;
  const { severity = "ok", note = "" } = node;
  const about = node.kind === "parameter" ? formatShape(node.shape ?? []) : `${formatCount(node.elements)} elements`;
  return (
    // biome-ignore lint/a11y/useFocusableInteractive: the focus stays on the tree, which names the active row
    // biome-ignore lint/a11y/useKeyWithClickEvents: the tree takes the keys
    <div
      id={rowId(row)}
      role="treeitem"
      className="tree-row"
      style={{ top, paddingLeft: 4 + node.depth * INDENT_PX }}
      aria-level={node.depth + 1}
      aria-posinset={position}
      aria-setsize={siblings}
      aria-expanded={row.hasChildren ? row.isOpen : undefined}
      aria-selected={isSelected}
      aria-label={`${node.label}, ${tree.stat_title} at worst ${node.worst}${note && `, ${note}`}`}
      data-active={isActive || undefined}
      data-holds={holdsSelected || undefined}
      title={[node.name, about, note].filter(Boolean).join("\n")}
      onClick={onSelect}
    >
      {row.hasChildren ? (
        // biome-ignore lint/a11y/noStaticElementInteractions: the arrow keys do the same
        // biome-ignore lint/a11y/useKeyWithClickEvents: as above
        <span
          className="tree-toggle"
          data-testid={`toggle-${node.name}`}
          onClick={(event) => {
            event.stopPropagation();
            onToggle();
          }}
        >
          <Icon name={row.isOpen ? "down" : "right"} className="small" />
        </span>
      ) : (
        <span className="tree-toggle" />
      )}
      <span className="tree-label">{node.label}</span>
      <Spark node={node} classes={tree.classes} {...SPARK} />
      <span className={`tree-worst severity-${severity}`}>
        {(severity === "warning" || severity === "critical") && (
          <Icon name={SEVERITY_ICON[severity]} className="small" />
        )}
        {node.worst}
      </span>
    </div>
  );
}

/** Which rows are in sight, and how high one is: it follows the size of touch targets, so it is read from the page. */
function useShownRows(box: { current: HTMLElement | null }, numRows: number) {
  const [place, setPlace] = useState({ top: 0, height: 600, rowPx: 32 });
  useLayoutEffect(() => {
    const target = box.current;
    if (!target) return;
    const read = () => {
      const rowPx = Number.parseFloat(getComputedStyle(target).getPropertyValue("--row")) || 32;
      setPlace((before) => {
        const next = { top: target.scrollTop, height: target.clientHeight, rowPx };
        return before.top === next.top && before.height === next.height && before.rowPx === rowPx ? before : next;
      });
    };
    read();
    const observer = new ResizeObserver(read);
    observer.observe(target);
    target.addEventListener("scroll", read, { passive: true });
    return () => {
      observer.disconnect();
      target.removeEventListener("scroll", read);
    };
  }, [box]);
  const { top, height, rowPx } = place;
  const first = Math.max(0, Math.floor(top / rowPx) - SPARE_ROWS);
  return { first, last: Math.min(numRows, Math.ceil((top + height) / rowPx) + SPARE_ROWS), rowPx };
}

/** Keeps the active row in sight when it changes, and leaves the tree alone when only its numbers do. */
function useScrollTo(box: { current: HTMLElement | null }, active: number, rowPx: number, rows: TreeRow[]) {
  const name = rows[active]?.item.node.name;
  // biome-ignore lint/correctness/useExhaustiveDependencies: another row is what moves it
  useLayoutEffect(() => {
    const target = box.current;
    if (!target) return;
    const top = active * rowPx;
    if (top < target.scrollTop) target.scrollTop = top;
    else if (top + rowPx > target.scrollTop + target.clientHeight) target.scrollTop = top + rowPx - target.clientHeight;
  }, [name, rowPx]);
}
