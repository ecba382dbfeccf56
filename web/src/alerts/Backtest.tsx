/** When the rule that is being written would have fired on stored runs, as one types. */

import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { runsQuery } from "../api/queries";
import type { BacktestRun, Rule } from "../api/types";
import { formatCount, shortenMiddle } from "../lib/format";
import { useDebounced, usePhone } from "../lib/hooks";
import { Link } from "../lib/router";
import { Icon } from "../ui/icons";
import { CheckMenu } from "../ui/overlays";
import { FailedState, Loading } from "../ui/states";
import { backtestQuery } from "./queries";
import { ValueChart } from "./ValueChart";
import { formatValue } from "./values";

const TYPING_MS = 250;
/** A rule that is tried for longer says so: those of layers look at every layer of every sketched step. */
const SLOW_MS = 600;
const CHART_PX = { desktop: 600, phone: 340 };
const CHART_HEIGHT_PX = 110;
const MOST_LISTED = 6;
/** What the server takes. */
const MOST_RUNS = 20;

interface PreviewProps {
  rule: Rule;
  /** A rule with something wrong is not tried: what was found before stays. */
  isSound: boolean;
  /** A run to try it on; null: the newest that it looks at. */
  run: string | null;
}

export function Preview({ rule, isSound, run }: PreviewProps) {
  const [chosen, setChosen] = useState<string[]>(run ? [run] : []);
  const phone = usePhone();
  const settled = useDebounced(rule, TYPING_MS);
  const { data, error, refetch, isPlaceholderData } = useQuery({
    ...backtestQuery(settled, chosen, CHART_PX[phone ? "phone" : "desktop"]),
    enabled: isSound,
  });
  const { data: list } = useQuery(runsQuery);
  const isOld = isPlaceholderData || settled !== rule;
  const isSlow = useDebounced(isSound && isOld, SLOW_MS) && isOld;
  return (
    <section className="preview" aria-labelledby="preview-title" data-testid="backtest">
      <div className="section-head">
        <h2 className="title" id="preview-title">
          On stored runs
        </h2>
        <CheckMenu
          label="Runs to try the rule on"
          text={chosen.length === 0 ? "Newest runs" : chosen.length === 1 ? "1 run" : `${chosen.length} runs`}
          options={(list?.runs ?? []).map(({ id, name, project }) => ({
            id,
            text: project ? `${project} / ${name}` : name,
          }))}
          selected={chosen}
          onChange={(ids) => setChosen(ids.slice(0, MOST_RUNS))}
        />
      </div>
      {!data && !isSound && <p className="muted">Tried when nothing is wrong with the rule any more.</p>}
      {!data && isSound && (error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the preview" />)}
      {data && (
        <div className="preview-body" aria-busy={isOld}>
          <p className="verdict-text" role="status">
            {isSlow ? "Trying it on the stored runs…" : data.summary}
          </p>
          {data.runs.length === 0 && <p className="muted">The rule can be made now; it looks at the runs that come.</p>}
          {data.noisy && (
            <p className="banner banner-warning">
              <Icon name="warning" />
              <span>{data.noisy}</span>
            </p>
          )}
          {error && <p className="form-error">{error.message}</p>}
          <ul className="preview-runs">
            {data.runs.map((one) => (
              <PreviewRun key={one.run} run={one} rule={settled} unit={data.value_unit} />
            ))}
          </ul>
        </div>
      )}
    </section>
  );
}

function PreviewRun({ run, rule, unit }: { run: BacktestRun; rule: Rule; unit: string }) {
  const { first_step: first, last_step: last, episodes, num_episodes: numEpisodes } = run;
  const times =
    numEpisodes === 0 ? "does not fire" : numEpisodes === 1 ? "fires once" : `fires ${formatCount(numEpisodes)} times`;
  return (
    <li className="preview-run" data-testid={`backtest-${run.run}`}>
      <p className="preview-head">
        <Link to={`/runs/${run.run}`} title={run.run_name}>
          {shortenMiddle(run.run_name, 40)}
        </Link>
        <span className={numEpisodes > 0 ? `severity-${rule.severity}` : "muted"}>{run.note || times}</span>
      </p>
      {first !== null && last !== null && run.steps.length > 0 && (
        <ValueChart
          series={run}
          span={[first, Math.max(last, first + 1)]}
          threshold={rule.threshold}
          clear={rule.clear}
          stretches={episodes.map((episode) => ({
            first: episode.first_step,
            last: episode.resolved_step,
            fired: episode.fired_step,
          }))}
          severity={rule.severity}
          height={CHART_HEIGHT_PX}
          unit={unit}
          label={`What is compared, run ${run.run_name}, steps ${formatCount(first)} to ${formatCount(last)}: the rule ${times}`}
        />
      )}
      {episodes.length > 0 && (
        <ul className="preview-episodes" aria-label={`Where it fires on ${run.run_name}`}>
          {episodes.slice(0, MOST_LISTED).map((episode) => (
            <li key={`${episode.layer} ${episode.rank} ${episode.first_step}`}>
              <Link to={episodeAddress(run.run, episode.fired_step)}>step {formatCount(episode.fired_step)}</Link>{" "}
              <span className="muted">
                {episode.layer && `${shortenMiddle(episode.layer, 32)} · `}
                {episode.rank !== null && `rank ${episode.rank} · `}
                {unit !== "flag" && `${formatValue(episode.worst, unit)} at worst · `}
                {episode.resolved_step === null ? "to the end" : `over at step ${formatCount(episode.resolved_step)}`}
              </span>
            </li>
          ))}
          {numEpisodes > MOST_LISTED && <li className="muted">and {formatCount(numEpisodes - MOST_LISTED)} more</li>}
        </ul>
      )}
    </li>
  );
}

/** Steps on either side of what is opened. */
const AROUND_STEPS = 100;

function episodeAddress(run: string, step: number): string {
  return `/runs/${run}?r=${Math.max(0, step - AROUND_STEPS)}-${step + AROUND_STEPS}`;
}
