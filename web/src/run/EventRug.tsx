/** Every event of a run on one line under the strip. Marks that would touch come merged, with a count, from the server. */

import { useQuery } from "@tanstack/react-query";
import { useRef } from "react";
import { rugQuery } from "../api/queries";
import type { RugMark, Strip } from "../api/types";
import { useWidth } from "../lib/hooks";
import { Link } from "../lib/router";

/** From here on a count fits beside its mark without touching the next. */
const COUNT_PX = 22;
/** The server merges by width: asked for in steps, so that a dragged window border does not ask for each pixel. */
const WIDTH_STEP_PX = 100;

interface EventRugProps {
  run: string;
  strip: Strip;
  numEvents: number;
}

export function EventRug({ run, strip, numEvents }: EventRugProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const asked = Math.min(4000, Math.max(WIDTH_STEP_PX, Math.floor(width / WIDTH_STEP_PX) * WIDTH_STEP_PX));
  const { data: rug } = useQuery({ ...rugQuery(run, asked, numEvents), enabled: width > 0 });
  const span = Math.max(1, strip.last_step - strip.first_step);
  // On the strip's own scale, so that a mark stands under its cell; what happened before the first step stands at its edge.
  const places = (rug?.marks ?? []).map((mark) => {
    const middle = (mark.first_step + mark.last_step) / 2;
    return { mark, x: Math.min(1, Math.max(0, (middle - strip.first_step) / span)) };
  });
  const total = `${(rug?.total ?? 0).toLocaleString("en-US")} ${rug?.total === 1 ? "event" : "events"}`;
  return (
    <div className="rug">
      <div
        ref={box}
        className="rug-line"
        role="img"
        aria-label={`${total}. The Events tab lists them.`}
        data-testid="rug"
      >
        {places.map(({ mark, x }, at) => (
          <Mark
            key={`${mark.first_step}-${mark.text}`}
            mark={mark}
            x={x}
            roomPx={((places[at + 1]?.x ?? 2) - x) * width}
          />
        ))}
      </div>
      {rug && rug.total > 0 && (
        <Link to={`/runs/${run}/events`} className="rug-total">
          {total}
        </Link>
      )}
    </div>
  );
}

function Mark({ mark, x, roomPx }: { mark: RugMark; x: number; roomPx: number }) {
  return (
    <span className="rug-mark" title={mark.text} style={{ left: `${x * 100}%`, color: `var(--c-${mark.role})` }}>
      {mark.count === 1 ? (
        mark.mark
      ) : (
        <span className="rug-bar" style={{ height: Math.min(16, 6 + 3 * Math.log10(mark.count)) }} />
      )}
      {mark.count > 1 && roomPx > COUNT_PX && <span className="rug-count">{mark.count}</span>}
    </span>
  );
}
