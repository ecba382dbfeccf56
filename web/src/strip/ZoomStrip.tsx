/** The wide strip of a run with its brush: the page's zoom. Steps in, steps out; what the URL makes of them is not its business. */

import { type KeyboardEvent, type PointerEvent, useMemo, useRef, useState } from "react";
import type { Strip as StripData } from "../api/types";
import { formatCount } from "../lib/format";
import { BadMenu } from "./BadMenu";
import { type LaneRange, laneRanges } from "./lanes";
import { laneAt, type Pick, pickAt, Strip } from "./Strip";

export type StepRange = [number, number];

interface ZoomStripProps {
  run: string;
  strip: StripData;
  underflow: StripData | null;
  range: StepRange | null;
  onRange: (range: StepRange | null) => void;
}

/** A drag shorter than this is a click. */
const CLICK_PX = 4;
const HEIGHTS = { upper: 44, gap: 3, lower: 14 };
/** On its own page a strip is compared with no other: nothing is kept free for a lane that is not there. */
const ONE_LANE = { upper: 44, gap: 0, lower: 0 };

export function ZoomStrip({ run, strip, underflow, range, onRange }: ZoomStripProps) {
  const box = useRef<HTMLDivElement>(null);
  const ranges = useMemo(() => laneRanges(strip, underflow), [strip, underflow]);
  const [pick, setPick] = useState<Pick | null>(null);
  const [drag, setDrag] = useState<{ from: number; to: number; startX: number } | null>(null);
  const first = strip.first_step;
  const last = Math.max(strip.last_step, first + 1);

  const stepAt = (clientX: number): number => {
    const area = box.current?.getBoundingClientRect();
    if (!area || area.width === 0) return first;
    const share = Math.min(1, Math.max(0, (clientX - area.left) / area.width));
    return Math.round(first + share * (last - first));
  };
  const shareOf = (step: number) => Math.min(1, Math.max(0, (step - first) / (last - first)));

  const onPointerDown = (event: PointerEvent<HTMLDivElement>) => {
    if (event.button !== 0) return;
    const at = stepAt(event.clientX);
    const handle = (event.target as HTMLElement).dataset.handle;
    // Dragging a handle keeps the other end where it is.
    const from = handle && range ? (handle === "from" ? range[1] : range[0]) : at;
    event.currentTarget.setPointerCapture(event.pointerId);
    setDrag({ from, to: at, startX: handle ? Number.NEGATIVE_INFINITY : event.clientX });
  };
  const onPointerMove = (event: PointerEvent) => {
    if (drag) setDrag({ ...drag, to: stepAt(event.clientX) });
  };
  const onPointerUp = (event: PointerEvent) => {
    if (!drag) return;
    setDrag(null);
    if (Math.abs(event.clientX - drag.startX) >= CLICK_PX) onRange(ordered(drag.from, stepAt(event.clientX)));
    else setPick(pickUnder(event.clientX, event.clientY));
  };
  const heights = underflow ? HEIGHTS : ONE_LANE;
  const pickUnder = (clientX: number, clientY: number): Pick | null => {
    const area = box.current?.getBoundingClientRect();
    if (!area) return null;
    const lane = laneAt(clientY - area.top, heights);
    return pickAt(strip, ranges, (clientX - area.left) / area.width, area.width, lane);
  };

  const shown = drag ? ordered(drag.from, drag.to) : range;
  const [left, right] = shown ? [shareOf(shown[0]), shareOf(shown[1])] : [0, 1];
  const moveEnd = (end: 0 | 1, to: number) => {
    const next: StepRange = range ? [...range] : [first, last];
    next[end] = end === 0 ? Math.max(first, Math.min(to, next[1] - 1)) : Math.min(last, Math.max(to, next[0] + 1));
    onRange(next[0] <= first && next[1] >= last ? null : next);
  };
  return (
    <div className="zoom">
      <div className="strip-box">
        {/* biome-ignore lint/a11y/noStaticElementInteractions: the two sliders do the same from the keyboard */}
        <div
          ref={box}
          className="zoom-area"
          data-testid="zoom-strip"
          onPointerDown={onPointerDown}
          onPointerMove={onPointerMove}
          onPointerUp={onPointerUp}
          onPointerCancel={() => setDrag(null)}
          onDoubleClick={() => onRange(null)}
        >
          <Strip strip={strip} underflow={underflow} heights={heights} onPick={setPick} />
          {shown && (
            <>
              <div className="zoom-shade" style={{ left: 0, width: `${left * 100}%` }} />
              <div className="zoom-shade" style={{ left: `${right * 100}%`, right: 0 }} />
            </>
          )}
          <Handle
            end="from"
            at={left}
            value={shown?.[0] ?? first}
            limits={[first, last]}
            onMove={(to) => moveEnd(0, to)}
          />
          <Handle
            end="to"
            at={right}
            value={shown?.[1] ?? last}
            limits={[first, last]}
            onMove={(to) => moveEnd(1, to)}
          />
        </div>
        {pick && (
          <BadMenu
            run={run}
            pick={pick}
            hasLayers={underflow !== null}
            around={around(strip, pick.range.first_step, pick.range.last_step)}
            onZoom={() => onRange(around(strip, pick.range.first_step, pick.range.last_step))}
            onClose={() => setPick(null)}
          />
        )}
      </div>
      <div className="zoom-scale" aria-hidden="true">
        <span>step {formatCount(strip.first_step)}</span>
        {shown && (
          <span className="zoom-range">
            {formatCount(shown[0])} – {formatCount(shown[1])}
          </span>
        )}
        <span>{formatCount(strip.last_step)}</span>
      </div>
      <RangeList strip={strip} ranges={ranges} onPick={setPick} />
    </div>
  );
}

function ordered(a: number, b: number): StepRange {
  return a < b ? [a, b] : [b, Math.max(a, b + 1)];
}

interface HandleProps {
  end: "from" | "to";
  at: number;
  value: number;
  limits: StepRange;
  onMove: (to: number) => void;
}

function Handle({ end, at, value, limits: [first, last], onMove }: HandleProps) {
  const onKeyDown = (event: KeyboardEvent) => {
    const percent = Math.max(1, Math.round((last - first) / 100)) * (event.shiftKey ? 10 : 1);
    const to = { ArrowLeft: value - percent, ArrowRight: value + percent, Home: first, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    onMove(to);
  };
  return (
    <div
      className={`zoom-handle zoom-handle-${end}`}
      data-handle={end}
      role="slider"
      tabIndex={0}
      aria-label={end === "from" ? "Zoom from step" : "Zoom to step"}
      aria-valuemin={first}
      aria-valuemax={last}
      aria-valuenow={value}
      aria-valuetext={`step ${formatCount(value)}`}
      style={{ left: `${at * 100}%` }}
      onKeyDown={onKeyDown}
    />
  );
}

/** The bad stretches as a list for the keyboard: one tab stop, arrows between them, Enter opens. Seen while it has the focus. */
function RangeList({ strip, ranges, onPick }: { strip: StripData; ranges: LaneRange[]; onPick: (pick: Pick) => void }) {
  const [active, setActive] = useState(0);
  const list = useRef<HTMLOListElement>(null);
  if (ranges.length === 0) return null;
  const chosen = Math.min(active, ranges.length - 1);
  const onKeyDown = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const next = Math.min(ranges.length - 1, Math.max(0, chosen + step));
    setActive(next);
    list.current?.querySelectorAll("button")[next]?.focus();
  };
  const placeOf = ({ first_step, last_step }: LaneRange) =>
    ((first_step + last_step) / 2 - strip.first_step) / Math.max(1, strip.last_step - strip.first_step);
  return (
    <ol ref={list} className="range-list" aria-label="Bad stretches" onKeyDown={onKeyDown}>
      {ranges.map((range, at) => (
        <li key={`${range.lane}-${range.first_step}`}>
          <button
            type="button"
            aria-haspopup="menu"
            tabIndex={at === chosen ? 0 : -1}
            onFocus={() => setActive(at)}
            onClick={() => onPick({ range, at: Math.min(1, Math.max(0, placeOf(range))) })}
          >
            {range.text}
          </button>
        </li>
      ))}
    </ol>
  );
}

/** A stretch with room on both sides, inside the run. */
export function around(strip: StripData, first: number, last: number): StepRange {
  const room = Math.max(10, Math.round((last - first) / 2), Math.round((strip.last_step - strip.first_step) / 100));
  const from = Math.max(strip.first_step, first - room);
  return [from, Math.max(from + 1, Math.min(strip.last_step, last + room))];
}
