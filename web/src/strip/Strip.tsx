/** A health strip on a canvas: one image for a screen reader, read-outs by pointer and arrow keys. */

import { type KeyboardEvent, type PointerEvent, useEffect, useMemo, useRef, useState } from "react";
import type { Strip as StripData } from "../api/types";
import { useWidth } from "../lib/hooks";
import { usePalette } from "../lib/theme";
import { binText, decodeStrip, paintStrip } from "./paint";

interface StripProps {
  strip: StripData;
  height: number;
}

export function Strip({ strip, height }: StripProps) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(box);
  const palette = usePalette();
  const decoded = useMemo(() => decodeStrip(strip), [strip]);
  const [bin, setBin] = useState<number | null>(null);
  const [byKey, setByKey] = useState(false);

  useEffect(() => {
    if (!canvas.current || width === 0) return;
    const ratio = devicePixelRatio || 1;
    canvas.current.width = Math.round(width * ratio);
    canvas.current.height = Math.round(height * ratio);
    paintStrip(canvas.current, decoded, palette.color, ratio);
  }, [decoded, width, height, palette]);

  const onPointerMove = (event: PointerEvent) => {
    const area = event.currentTarget.getBoundingClientRect();
    const at = Math.floor(((event.clientX - area.left) / area.width) * strip.num_bins);
    setByKey(false);
    setBin(Math.min(strip.num_bins - 1, Math.max(0, at)));
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const next = nextBin(decoded.strip, bin, event.key);
    if (next === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    setByKey(next !== null);
    setBin(next);
  };

  const shown = bin !== null && bin < strip.num_bins ? bin : null;
  const share = shown === null ? 0 : (shown + 0.5) / strip.num_bins;
  return (
    <div ref={box} className="strip" style={{ height }}>
      <canvas
        ref={canvas}
        role="img"
        aria-label={strip.summary}
        tabIndex={0}
        onPointerMove={onPointerMove}
        onPointerLeave={() => setBin(null)}
        onBlur={() => setBin(null)}
        onKeyDown={onKeyDown}
        style={{ height }}
      />
      {shown !== null && (
        <>
          <div className="strip-cursor" style={{ left: `${share * 100}%` }} />
          <div className="readout" style={{ left: `clamp(0px, calc(${share * 100}% - 110px), calc(100% - 220px))` }}>
            {binText(decoded, shown)}
          </div>
        </>
      )}
      <span className="sr-only" aria-live="polite">
        {byKey && shown !== null ? binText(decoded, shown) : ""}
      </span>
    </div>
  );
}

/** The bin that a key leads to: arrows go to the next bin that has something to tell, else on by a percent.
 *
 * undefined: not our key; null: leave.
 */
function nextBin(strip: StripData, bin: number | null, key: string): number | null | undefined {
  if (key === "Escape") return bin === null ? undefined : null;
  if (key === "Home") return 0;
  if (key === "End") return strip.num_bins - 1;
  const direction = key === "ArrowRight" ? 1 : key === "ArrowLeft" ? -1 : 0;
  if (direction === 0) return undefined;
  const from = bin ?? (direction > 0 ? -1 : strip.num_bins);
  const telling = Object.keys(strip.texts)
    .map(Number)
    .filter((at) => (at - from) * direction > 0);
  if (telling.length > 0) return direction > 0 ? Math.min(...telling) : Math.max(...telling);
  const onward = from + direction * Math.max(1, Math.round(strip.num_bins / 100));
  return Math.min(strip.num_bins - 1, Math.max(0, onward));
}
