/** Layers on a phone: the tree as a select, the worst dozen as rows, the charts below. */

import { type ReactNode, useId } from "react";
import type { LayerNode, LayerTree } from "../api/types";
import { shortenMiddle } from "../lib/format";
import { Icon, SEVERITY_ICON } from "../ui/icons";
import { Spark } from "./Spark";
import { setLayer } from "./selection";
import type { TreeItem } from "./tree";

interface PhoneLayersProps {
  tree: LayerTree;
  items: TreeItem[];
  worst: LayerNode[];
  selected: string;
  children: ReactNode;
}

/** As many as fit beside the spark at 390 px: cut by the browser, a weight and its bias would read the same. */
const NAME_CHARS = 22;
/** A select of thousands of names cannot be scrolled by a thumb; the worst are in the list in any case. */
const MOST_OPTIONS = 1000;

export function PhoneLayers({ tree, items, worst, selected, children }: PhoneLayersProps) {
  const id = useId();
  return (
    <div className="layers-phone">
      <div className="field">
        <label className="muted" htmlFor={id}>
          Layer
        </label>
        <select id={id} className="select" value={selected} onChange={(event) => setLayer(event.target.value)}>
          {!items.slice(0, MOST_OPTIONS).some(({ node }) => node.name === selected) && <option>{selected}</option>}
          {items.slice(0, MOST_OPTIONS).map(({ node }) => (
            <option key={node.name + node.kind} value={node.name}>
              {/* The chosen one stands alone in the closed select, where its place in the tree tells nothing. */}
              {node.name === selected
                ? shortenMiddle(node.name, NAME_CHARS)
                : "\u00a0\u00a0".repeat(node.depth) + node.label}{" "}
              · {node.worst}
            </option>
          ))}
        </select>
      </div>
      <section aria-label="Worst layers">
        <h2 className="panel-title">Worst layers · {tree.stat_title.toLowerCase()}</h2>
        <ol className="worst-list" data-testid="worst-layers">
          {worst.map((node) => (
            <li key={node.name}>
              <button
                type="button"
                className="worst-row"
                aria-pressed={node.name === selected}
                onClick={() => setLayer(node.name)}
              >
                <span className="mono worst-name">{shortenMiddle(node.name, NAME_CHARS)}</span>
                <Spark node={node} classes={tree.classes} width={64} height={18} />
                <span className={`tree-worst severity-${node.severity ?? "ok"}`}>
                  {(node.severity === "warning" || node.severity === "critical") && (
                    <Icon name={SEVERITY_ICON[node.severity]} className="small" />
                  )}
                  {node.worst}
                </span>
              </button>
            </li>
          ))}
        </ol>
      </section>
      {children}
    </div>
  );
}
