/** A compared number over the steps, with the threshold and the stretches in which a rule fires. A picture of what the server
 * worked out, like the health strip: nothing is computed here but places. */

import { useRef } from "react";
import type { Severity } from "../api/types";
import { formatCount } from "../lib/format";
import { useWidth } from "../lib/hooks";
import { largest, outline, type Series, scaleFor, xOf, yOf } from "./geometry";
import { formatValue } from "./values";

export interface Stretch {
  first: number;
  /** Null: it goes on. */
  last: number | null;
  /** Where it had been so for long enough. */
  fired: number | null;
}

interface ValueChartProps {
  series: Series;
  /** First and last step shown. */
  span: readonly [number, number];
  threshold: number | null;
  clear?: number | null;
  stretches: Stretch[];
  severity: Severity;
  height: number;
  /** In words, for who does not see it. */
  label: string;
  /** Unit of the numbers at the axes; null: a spark without axes. */
  unit?: string | null;
}

const TEXT_PX = 16;
/** A stretch is never drawn thinner. */
const LEAST_PX = 2;

export function ValueChart(props: ValueChartProps) {
  const { series, span, threshold, clear = null, stretches, severity, height, label, unit = null } = props;
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const area = { width, height };
  const levels = [threshold, clear].filter((level) => level !== null);
  const scale = scaleFor(series, levels);
  const top = largest(series);
  const topY = top === null ? null : yOf(top, scale, area);
  const y = threshold === null ? null : yOf(threshold, scale, area);
  const clearY = clear === null || clear === threshold ? null : yOf(clear, scale, area);
  return (
    <div className={`value-chart severity-${severity}`} ref={box}>
      <svg width={width} height={height} viewBox={`0 0 ${Math.max(1, width)} ${height}`} role="img" aria-label={label}>
        {stretches.map(({ first, last, fired }) => {
          const from = xOf(first, span, area);
          const to = xOf(last ?? span[1], span, area);
          const at = fired === null ? null : xOf(fired, span, area);
          return (
            <g key={first}>
              <rect className="value-band" x={from} width={Math.max(LEAST_PX, to - from)} height={height} />
              {at !== null && <path className="value-fired" d={`M${at} 0V${height}`} />}
            </g>
          );
        })}
        {y !== null && <path className="value-threshold" d={`M0 ${y}H${width}`} />}
        {clearY !== null && <path className="value-clear" d={`M0 ${clearY}H${width}`} />}
        <path className="value-line" d={outline(series, span, scale, area)} />
        {unit !== null && (
          <>
            {top !== null && topY !== null && topY < height / 2 && (
              <text className="value-text" x={2} y={Math.max(11, topY)}>
                {formatValue(top, unit)}
              </text>
            )}
            {y !== null && (
              <text className="value-text value-level" x={width - 2} y={y > TEXT_PX ? y - 4 : y + 12}>
                {formatValue(threshold, unit)}
              </text>
            )}
          </>
        )}
      </svg>
      {unit !== null && (
        <p className="value-steps" aria-hidden="true">
          <span>{formatCount(span[0])}</span>
          <span>step {formatCount(span[1])}</span>
        </p>
      )}
    </div>
  );
}
