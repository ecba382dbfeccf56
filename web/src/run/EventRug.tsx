/** Every event of a run on one line under the strip. Marks that would touch come merged, with a count, from the server. */

import { useQuery } from "@tanstack/react-query";
import { useRef } from "react";
import { rugQuery } from "../api/queries";
import type { Strip } from "../api/types";
import { useWidth } from "../lib/hooks";
import { type Place, placeMarks } from "./rug";

/** From here on a mark's sign, or its count, fits without touching its neighbours. */
const SIGN_PX = 14;
const COUNT_PX = 30;
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
  const places = placeMarks(rug?.marks ?? [], strip, width);
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
        {places.map((place, at) => (
          <Mark
            key={`${place.x}-${place.text}`}
            place={place}
            beforePx={place.x - (places[at - 1]?.x ?? Number.NEGATIVE_INFINITY)}
            // The last one has room up to the edge; a sign alone may reach a little beyond.
            afterPx={(places[at + 1]?.x ?? width + SIGN_PX + 1) - place.x}
          />
        ))}
      </div>
    </div>
  );
}

function Mark({ place, beforePx, afterPx }: { place: Place; beforePx: number; afterPx: number }) {
  const { x, mark, count, role, text } = place;
  return (
    <span className="rug-mark" title={text} style={{ left: x, color: `var(--c-${role})` }}>
      {Math.min(beforePx, afterPx) > SIGN_PX ? (
        <span className="rug-sign">{mark}</span>
      ) : (
        <span className="rug-bar" style={{ height: Math.min(18, 6 + 4 * Math.log10(count)) }} />
      )}
      {count > 1 && afterPx > COUNT_PX && <span className="rug-count">{count.toLocaleString("en-US")}</span>}
    </span>
  );
}
