/** The cells of a chart of ranks over steps: which rank each leads to, and where on the steps it lies. */

import type { PanelFigure } from "../api/types";
import { unpack } from "../chart/arrays";
import { columnPlaces } from "../layers/steps";

export interface Cell {
  row: number;
  column: number;
}

export interface Cells {
  numRows: number;
  /** Where each column begins, in the units of the window's x axis. */
  places: number[];
  /** What its value counts, with its unit. */
  title: string;
  /** Who is to be looked at; null where nothing was measured. */
  rankAt(cell: Cell): number | null;
  /** As it is drawn; null: none that is finite. */
  valueAt(cell: Cell): number | null;
}

interface Heat {
  customdata?: { shape?: string };
  colorbar?: { title?: { text?: string } };
}

/** The cells of a figure as the server packs them: [rows, columns, K], of which the first is the value and the last who
 * is to be looked at. Null where there are none. */
export function cellsOf(figure: PanelFigure | undefined, x: "step" | "time", utcOffsetMin: number): Cells | null {
  const heat = figure?.fill.data[0] as Heat | undefined;
  const [numRows = 0, numColumns = 0, depth = 0] = (heat?.customdata?.shape ?? "").split(",").map(Number);
  if (!numRows || !numColumns || !depth) return null;
  const numbers = unpack(heat?.customdata) as number[];
  const at = ({ row, column }: Cell, place: number) => {
    const isInside = row >= 0 && row < numRows && column >= 0 && column < numColumns;
    const found = isInside ? numbers[(row * numColumns + column) * depth + place] : undefined;
    return found === undefined || Number.isNaN(found) ? null : found;
  };
  return {
    numRows,
    places: columnPlaces(figure, x, utcOffsetMin),
    title: heat?.colorbar?.title?.text ?? "",
    rankAt: (cell) => {
      const rank = at(cell, depth - 1);
      return rank === null || rank < 0 ? null : rank;
    },
    valueAt: (cell) => at(cell, 0),
  };
}

/** The cell at a place of the chart. */
export function cellAt({ places }: Cells, place: number, y: number): Cell {
  return { row: Math.round(y), column: places.filter((begin) => begin <= place).length - 1 };
}

const MOVES: Record<string, [rows: number, columns: number]> = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
};

/** Where an arrow leads, over what was not measured; the newest cell of the first row where it comes from nowhere. */
export function moved(cells: Cells, from: Cell | null, key: string): Cell | null {
  const [rows, columns] = MOVES[key] ?? [0, 0];
  if (!rows && !columns) return null;
  let cell = from ?? { row: 0, column: cells.places.length - 1 };
  const step = from ? { rows, columns } : { rows: 0, columns: -1 };
  if (from) cell = { row: cell.row + rows, column: cell.column + columns };
  while (cell.row >= 0 && cell.row < cells.numRows && cell.column >= 0 && cell.column < cells.places.length) {
    if (cells.rankAt(cell) !== null) return cell;
    cell = { row: cell.row + step.rows, column: cell.column + step.columns };
  }
  return from;
}
