/** Where steps that were not finite began, and what the reduction of each bucket costs and gets wrong. */

import type { RankBucket, RanksReport } from "../api/types";
import { layersAddress } from "../layers/address";
import { formatBytes, formatCount, formatShare, MISSING, shortenMiddle } from "../lib/format";
import { Link } from "../lib/router";
import { formatSeconds } from "./RankTable";

const KINDS = {
  backward: "in the backward pass",
  compression: "in the compression of the communication hook",
  reduction: "in the sum over ranks alone: every rank's own gradient was finite",
} as const;
const MOST_NAMED = 3;

export function Origins({ run, report }: { run: string; report: RanksReport }) {
  if (report.origins.length === 0) return null;
  return (
    <section aria-labelledby="ranks-origins-title">
      <h2 className="section-title" id="ranks-origins-title">
        Where NaN and Inf began
        <span className="muted"> · {formatCount(report.num_origins)}</span>
      </h2>
      <ol className="origins" data-testid="origins">
        {report.origins.map(({ attempt, step, kind, ranks, layers }) => (
          <li key={`${attempt} ${step} ${kind}`} className="origin">
            <Link to={`/runs/${run}/events?r=${step}-${step + 1}`}>step {formatCount(step)}</Link>
            <span>
              {ranks.length > 0 && (
                <strong>
                  {ranks.length === 1 ? "rank" : "ranks"} {ranks.slice(0, MOST_NAMED).map(formatCount).join(", ")}
                  {ranks.length > MOST_NAMED && ` and ${formatCount(ranks.length - MOST_NAMED)} more`}{" "}
                </strong>
              )}
              {KINDS[kind]}
            </span>
            <span className="origin-layers">
              {layers.slice(0, MOST_NAMED).map((layer) => (
                <Link key={layer} className="mono" to={layersAddress(run, { layer, step })} title={layer}>
                  {shortenMiddle(layer)}
                </Link>
              ))}
              {layers.length > MOST_NAMED && (
                <span className="muted">and {formatCount(layers.length - MOST_NAMED)} more</span>
              )}
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}

export function Buckets({ run, report }: { run: string; report: RanksReport }) {
  if (report.buckets.length === 0) return null;
  return (
    <section aria-labelledby="ranks-buckets-title">
      <h2 className="section-title" id="ranks-buckets-title">
        Buckets of the reduction
        {report.comm_hook && <span className="muted"> · {report.comm_hook}</span>}
      </h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling region must be reachable from the keyboard */}
      <section className="side-scroll" tabIndex={0} aria-label="Every bucket">
        <table className="number-grid" data-testid="buckets">
          <thead>
            <tr>
              {["Bucket", "Layers", "Size", "Time", "Bandwidth", "Error", "Worst layer"].map((title) => (
                <th key={title} scope="col">
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {report.buckets.map((bucket) => (
              <BucketRow key={bucket.bucket} run={run} bucket={bucket} />
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}

function BucketRow({ run, bucket }: { run: string; bucket: RankBucket }) {
  const { layers, worst_layer: worst } = bucket;
  const rate = bucket.bandwidth_bytes_per_s;
  return (
    <tr>
      <th scope="row">{formatCount(bucket.bucket)}</th>
      <td title={layers.join("\n")}>{formatCount(layers.length)}</td>
      <td>
        {formatBytes(bucket.num_bytes)} <span className="muted">{bucket.dtype}</span>
      </td>
      <td>{bucket.time_s == null ? MISSING : formatSeconds(bucket.time_s)}</td>
      <td>{rate == null ? MISSING : `${formatBytes(rate)}/s`}</td>
      <td>{bucket.error == null ? MISSING : formatShare(bucket.error)}</td>
      <td>
        {worst ? (
          <Link className="mono" to={layersAddress(run, { layer: worst })} title={worst}>
            {shortenMiddle(worst)}
          </Link>
        ) : (
          MISSING
        )}
        {bucket.worst_error != null && <span className="muted"> {formatShare(bucket.worst_error)}</span>}
      </td>
    </tr>
  );
}
