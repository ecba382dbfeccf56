/** A node's statistic over the window as a small picture, painted like the health strip. The number beside it says the rest. */

import { useEffect, useMemo, useRef } from "react";
import type { LayerNode, LayerTree } from "../api/types";
import { decodeBytes } from "../lib/bytes";
import { usePalette } from "../lib/theme";
import { paintCells } from "../strip/paint";

interface SparkProps {
  node: LayerNode;
  classes: LayerTree["classes"];
  width: number;
  height: number;
}

export function Spark({ node, classes, width, height }: SparkProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = usePalette();
  const { spark = "", spark_heights: sparkHeights = "" } = node;
  const cells = useMemo(
    () => ({ cells: decodeBytes(spark), heights: decodeBytes(sparkHeights) }),
    [spark, sparkHeights],
  );
  useEffect(() => {
    if (!canvas.current) return;
    const ratio = devicePixelRatio || 1;
    canvas.current.width = Math.round(width * ratio);
    canvas.current.height = Math.round(height * ratio);
    paintCells(canvas.current, { classes, ...cells }, palette.color, ratio);
  }, [cells, classes, width, height, palette]);
  // biome-ignore lint/a11y/noAriaHiddenOnFocusable: a canvas without a tab index takes no focus
  return <canvas ref={canvas} className="spark" style={{ width, height }} aria-hidden="true" />;
}
