/** Presets: rules ready to be taken over, with threshold and the reason for it. */

import { useQuery } from "@tanstack/react-query";
import type { Preset } from "../api/types";
import { formatCount } from "../lib/format";
import { Link } from "../lib/router";
import { Icon } from "../ui/icons";
import { FailedState, Loading } from "../ui/states";
import { toast } from "../ui/toast";
import { presetsQuery, useTakeOver } from "./queries";

/** The rest are matters of taste. */
function isRecommended({ rule }: Preset): boolean {
  return rule.severity !== "info";
}

function useTake() {
  const take = useTakeOver();
  return {
    isPending: take.isPending,
    take: (ids: string[], done: string) =>
      take.mutate(ids, {
        onSuccess: () => toast(done),
        onError: (error) => toast(error.message, { isError: true }),
      }),
  };
}

/** Makes rules of the recommended presets that are none yet; nothing where all are. */
export function TakeOverButton() {
  const { data } = useQuery(presetsQuery);
  const { isPending, take } = useTake();
  const missing = data?.presets.filter((preset) => isRecommended(preset) && !preset.taken) ?? [];
  if (missing.length === 0) return null;
  const isWhole = missing.length === data?.presets.filter(isRecommended).length;
  return (
    <button
      type="button"
      className={isWhole ? "button primary" : "button"}
      disabled={isPending}
      onClick={() => take([], `Took over ${formatCount(missing.length)} ${missing.length === 1 ? "rule" : "rules"}`)}
    >
      {isWhole ? "Take over the recommended set" : `Take over the other ${formatCount(missing.length)} recommended`}
    </button>
  );
}

export function Presets() {
  const { data, error, refetch } = useQuery(presetsQuery);
  const left = data?.presets.filter(({ taken }) => !taken) ?? [];
  const taken = data?.presets.filter((preset) => preset.taken) ?? [];
  return (
    <section aria-labelledby="presets-title">
      <div className="section-head">
        <h2 className="section-title" id="presets-title">
          Presets
        </h2>
        <TakeOverButton />
      </div>
      {!data && (error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the presets" />)}
      <div data-testid="presets">
        <PresetGroups presets={left} />
        {taken.length > 0 && (
          <details className="folded">
            <summary>Taken over already: {formatCount(taken.length)}</summary>
            <PresetGroups presets={taken} />
          </details>
        )}
      </div>
    </section>
  );
}

function PresetGroups({ presets }: { presets: Preset[] }) {
  const groups = new Map<string, Preset[]>();
  for (const preset of presets) groups.set(preset.group, [...(groups.get(preset.group) ?? []), preset]);
  return (
    <div className="preset-groups">
      {[...groups].map(([group, members]) => (
        <section key={group} className="preset-group" aria-label={group}>
          <h3 className="panel-title">{group}</h3>
          <ul>
            {members.map((preset) => (
              <PresetRow key={preset.rule.id} preset={preset} />
            ))}
          </ul>
        </section>
      ))}
    </div>
  );
}

function PresetRow({ preset }: { preset: Preset }) {
  const { isPending, take } = useTake();
  const { rule, title, sentence, taken } = preset;
  const id = rule.preset || rule.id;
  return (
    <li className="preset" data-testid={`preset-${id}`}>
      <span className={`alert-icon severity-${rule.severity ?? "warning"}`} title={rule.severity}>
        <Icon name={rule.severity ?? "warning"} />
        <span className="sr-only">{rule.severity}</span>
      </span>
      <div className="alert-main">
        <strong>{title}</strong>
        <p>{sentence}</p>
        {rule.reason && <p className="muted">{rule.reason}</p>}
      </div>
      <div className="preset-actions">
        {taken ? (
          <span className="muted preset-taken">
            <Icon name="check" className="small" />
            Taken over
          </span>
        ) : (
          <button
            type="button"
            className="button"
            disabled={isPending}
            aria-label={`Take over ${title}`}
            onClick={() => take([id], `Took over ${title}`)}
          >
            Take over
          </button>
        )}
        <Link
          to={`/alerts/rules/new?preset=${encodeURIComponent(id)}`}
          className="button preset-try"
          aria-label={`Try ${title} on stored runs`}
        >
          Try
        </Link>
      </div>
    </li>
  );
}
