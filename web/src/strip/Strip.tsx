/** A health strip on canvases: one image for a screen reader, read-outs of both lanes by pointer and arrow keys. */

import { type KeyboardEvent, type MouseEvent, type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import type { Strip as StripData } from "../api/types";
import { useWidth } from "../lib/hooks";
import { usePalette } from "../lib/theme";
import { type LaneRange, laneRanges, lanesText, rangeAt, tellingBins } from "./lanes";
import { binSteps, type DecodedStrip, decodeStrip, paintStrip } from "./paint";

/** A bad stretch that was chosen, and where on the strip: 0..1 of its width. */
export interface Pick {
  range: LaneRange;
  at: number;
}

interface StripProps {
  strip: StripData;
  /** The lower lane; its place is kept free where there is none, so that strips compare. */
  underflow?: StripData | null;
  heights: StripHeights;
  /** Tells a bad stretch that was clicked, or that Enter was pressed on. */
  onPick?: (pick: Pick) => void;
}

export interface StripHeights {
  upper: number;
  gap: number;
  lower: number;
}

/** The lane at a height below the strip's upper edge. */
export function laneAt(y: number, { upper, gap, lower }: StripHeights): LaneRange["lane"] {
  return lower > 0 && y > upper + gap / 2 ? "underflow" : "steps";
}

/** How far from a mark a click still means it: marks can be two pixels wide. */
const NEAR_PX = 4;

export function Strip({ strip, underflow = null, heights, onPick }: StripProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const upper = useMemo(() => decodeStrip(strip), [strip]);
  const lower = useMemo(() => underflow && decodeStrip(underflow), [underflow]);
  const ranges = useMemo(() => laneRanges(strip, underflow), [strip, underflow]);
  const [bin, setBin] = useState<number | null>(null);
  const [byKey, setByKey] = useState(false);
  const [overBad, setOverBad] = useState(false);

  const onPointerMove = (event: PointerEvent) => {
    const at = Math.floor(shareAt(event) * strip.num_bins);
    setByKey(false);
    setBin(Math.min(strip.num_bins - 1, Math.max(0, at)));
    setOverBad(onPick !== undefined && pickAt(strip, ranges, shareAt(event), width) !== null);
  };
  const onClick = (event: MouseEvent) => {
    const y = event.clientY - event.currentTarget.getBoundingClientRect().top;
    const pick = pickAt(strip, ranges, shareAt(event), width, laneAt(y, heights));
    if (pick) onPick?.(pick);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const pick = event.key === "Enter" && bin !== null ? pickAt(strip, ranges, share, width) : null;
    const next = pick ? bin : nextBin(strip, underflow, bin, event.key);
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    if (pick) return onPick?.(pick);
    setByKey(next !== null);
    setBin(next);
  };

  const shown = bin !== null && bin < strip.num_bins ? bin : null;
  const share = shown === null ? 0 : (shown + 0.5) / strip.num_bins;
  return (
    <div ref={box} className="strip">
      {/* biome-ignore lint/a11y/useKeyWithClickEvents: Enter on the image inside does the same */}
      {/* biome-ignore lint/a11y/noStaticElementInteractions: as above */}
      <div
        className={overBad ? "strip-lanes strip-over-bad" : "strip-lanes"}
        style={{ gap: heights.gap }}
        onPointerMove={onPointerMove}
        onPointerLeave={() => setBin(null)}
        onClick={onPick && onClick}
      >
        <Lane
          decoded={upper}
          width={width}
          height={heights.upper}
          label={underflow ? `${strip.summary}; ${underflow.summary}` : strip.summary}
          onKeyDown={onKeyDown}
          onBlur={() => setBin(null)}
        />
        {lower ? (
          <Lane decoded={lower} width={width} height={heights.lower} />
        ) : (
          <div style={{ height: heights.lower }} />
        )}
      </div>
      {shown !== null && (
        <>
          <div className="strip-cursor" style={{ left: `${share * 100}%` }} />
          <div className="readout" style={{ left: `clamp(0px, calc(${share * 100}% - 110px), calc(100% - 220px))` }}>
            {lanesText(upper, lower, shown)}
          </div>
        </>
      )}
      <span className="sr-only" aria-live="polite">
        {byKey && shown !== null ? lanesText(upper, lower, shown) : ""}
      </span>
    </div>
  );
}

function shareAt(event: MouseEvent): number {
  const area = event.currentTarget.getBoundingClientRect();
  return (event.clientX - area.left) / area.width;
}

interface LaneProps {
  decoded: DecodedStrip;
  width: number;
  height: number;
  /** Makes it the image that is read out; without one it is decoration beside it. */
  label?: string;
  onKeyDown?: (event: KeyboardEvent) => void;
  onBlur?: () => void;
}

function Lane({ decoded, width, height, label, onKeyDown, onBlur }: LaneProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const palette = usePalette();
  useEffect(() => {
    if (!canvas.current || width === 0) return;
    const ratio = devicePixelRatio || 1;
    canvas.current.width = Math.round(width * ratio);
    canvas.current.height = Math.round(height * ratio);
    paintStrip(canvas.current, decoded, palette.color, ratio);
  }, [decoded, width, height, palette]);
  return label === undefined ? (
    // biome-ignore lint/a11y/noAriaHiddenOnFocusable: a canvas without a tab index takes no focus
    <canvas ref={canvas} aria-hidden="true" style={{ height }} data-lane={decoded.strip.lane} />
  ) : (
    <canvas
      ref={canvas}
      role="img"
      aria-label={label}
      tabIndex={0}
      onKeyDown={onKeyDown}
      onBlur={onBlur}
      style={{ height }}
      data-lane={decoded.strip.lane}
    />
  );
}

/** The bad stretch under a place of the strip, or next to it; null where all is well. */
export function pickAt(
  strip: StripData,
  ranges: LaneRange[],
  share: number,
  widthPx: number,
  lane?: LaneRange["lane"],
): Pick | null {
  const reach = widthPx > 0 ? NEAR_PX / widthPx : 0;
  const binOf = (at: number) => Math.min(strip.num_bins - 1, Math.max(0, Math.floor(at * strip.num_bins)));
  const [first] = binSteps(strip, binOf(share - reach));
  const [, last] = binSteps(strip, binOf(share + reach));
  const range = rangeAt(ranges, first, last, lane);
  return range && { range, at: Math.min(1, Math.max(0, share)) };
}

/** The bin that a key leads to: arrows go to the next bin that has something to tell, else on by a percent.
 *
 * undefined: not our key; null: leave.
 */
function nextBin(
  strip: StripData,
  underflow: StripData | null,
  bin: number | null,
  key: string,
): number | null | undefined {
  if (key === "Escape") return bin === null ? undefined : null;
  if (key === "Home") return 0;
  if (key === "End") return strip.num_bins - 1;
  const direction = key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0;
  if (direction === 0) return undefined;
  const from = bin ?? (direction > 0 ? -1 : strip.num_bins);
  const telling = tellingBins(strip, underflow).filter((at) => (at - from) * direction > 0);
  const next = direction > 0 ? telling[0] : telling.at(-1);
  if (next !== undefined) return next;
  const onward = from + direction * Math.max(1, Math.round(strip.num_bins / 100));
  return Math.min(strip.num_bins - 1, Math.max(0, onward));
}
