/** The layers of one member against the baseline's, worst first; the chosen one's pictures beside them. */

import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { layersQuery } from "../api/queries";
import type { CompareReport, LayerDivergence, Member, Numerics, PanelInfo } from "../api/types";
import { PanelCard, type PanelCardProps } from "../chart/PanelCard";
import type { ChartPoint } from "../chart/Plot";
import { StepReset } from "../layers/LayerCharts";
import { setLayer, setStat, setStep } from "../layers/selection";
import { formatCompact, formatCount, formatShare, MISSING, shortenMiddle } from "../lib/format";
import { usePhone } from "../lib/hooks";
import { useKeys } from "../lib/keys";
import { useRowKeys } from "../lib/rows";
import { Choice } from "../ui/choice";
import { setMember, setOverlaid, setSeen } from "./view";
import { formatRatio } from "./words";

export interface LayerChoice {
  /** Run whose layers are shown; empty: no member has any. */
  member: string;
  numerics: Numerics | undefined;
  layer: string;
}

/** The member whose layers are worth a look first: one that is worse, else one whose layers parted. */
function worstOf({ numerics, verdicts }: CompareReport): Numerics | undefined {
  const measured = numerics.slice(1).filter(({ layers }) => layers.length > 0);
  const isWorse = ({ run }: Numerics) => verdicts.some((verdict) => verdict.run === run && verdict.outcome === "worse");
  return measured.find(isWorse) ?? measured.find(({ first_step }) => first_step != null) ?? measured[0] ?? numerics[1];
}

/** Which member and layer the page is on: as the address says, else the worst as it was when the page was opened. */
export function useLayerChoice(report: CompareReport | undefined, member: string, layer: string): LayerChoice {
  const opened = useRef<Record<string, string>>({});
  const of = (run: string) => report?.numerics.slice(1).find((numerics) => numerics.run === run);
  const first = of(member) ?? of(opened.current[report?.key ?? ""] ?? "") ?? (report && worstOf(report));
  if (!report || !first) return { member: "", numerics: undefined, layer };
  // A ranking that changes while runs train must not change what one is looking at.
  if (first.layers.length > 0) opened.current[report.key] ??= first.run;
  opened.current[first.run] ||= first.first_layer || first.layers[0]?.layer || "";
  return { member: first.run, numerics: first, layer: layer || opened.current[first.run] || "" };
}

interface LayersProps {
  report: CompareReport;
  choice: LayerChoice;
  isOverlaid: boolean;
  panels: PanelInfo[];
  shared: Pick<PanelCardProps, "source" | "window" | "onVisible" | "onZoom">;
}

const FEW_ROWS = 12;
const WHOLE_RUN = { x: "step", first: null, last: null, stat: "underflow" } as const;

/** Charts that each show one member, told apart by its letter; all others show all. */
const WINDOW_PREFIX = "compare-window-";
/** Shows one step. */
const HISTOGRAM = "compare-histogram";

function windowOf(member: Member | undefined): string {
  return `${WINDOW_PREFIX}${member?.letter.toLowerCase()}`;
}

/** To where reasons lead. */
export const LAYERS_ID = "compare-layers";

export function Layers({ report, choice, isOverlaid, panels, shared }: LayersProps) {
  const { numerics, member, layer } = choice;
  const { gradient } = shared.window;
  // For what statistics there are; the layers of a run are the server's to name.
  const { data: tree } = useQuery({ ...layersQuery(report.members[0]?.run ?? "", WHOLE_RUN), enabled: isOverlaid });
  useKeys({ o: () => setOverlaid(!isOverlaid), u: () => setSeen(gradient !== "seen") });
  if (!numerics) return null;
  const others = report.members.slice(1);
  const chosen = numerics.layers.find((one) => one.layer === layer);
  const own = report.members.find(({ run }) => run === member);
  const shown = panels.filter(({ id }) =>
    isOverlaid ? !id.startsWith(WINDOW_PREFIX) : [report.members[0], own].some((one) => id === windowOf(one)),
  );
  const pickStep = ({ x }: ChartPoint) => {
    if (typeof x === "number") setStep(Math.max(0, Math.round(x)));
  };
  return (
    <section id={LAYERS_ID} className="compare-layers" aria-label="Layers">
      <div className="compare-layers-head">
        <h2 className="title">Layers</h2>
        {others.length > 1 && (
          <Choice
            label="Against the baseline"
            value={member}
            options={others.map(({ run, letter, name }) => ({ value: run, text: letter, title: name }))}
            onChange={setMember}
          />
        )}
        {panels.length > 0 && (
          <Choice
            label="Runs"
            value={isOverlaid ? "overlay" : "side"}
            options={ARRANGEMENTS}
            onChange={(next) => setOverlaid(next === "overlay")}
          />
        )}
        {panels.length > 0 && isOverlaid && tree && (
          <Choice
            label="Statistic"
            value={shared.window.stat}
            options={tree.stats.map(({ id, title, text }) => ({ value: id, text: title, title: text }))}
            onChange={setStat}
          />
        )}
        {panels.length > 0 && !isOverlaid && (
          <Choice
            label="Gradient"
            value={gradient === "seen" ? "seen" : "true"}
            options={GRADIENTS}
            onChange={(next) => setSeen(next === "seen")}
          />
        )}
      </div>
      <p className="muted layers-note">{summaryOf(numerics)}</p>
      {numerics.layers.length > 0 && (
        <div className="layers">
          <LayerList key={member} numerics={numerics} layer={layer} />
          <div>
            {chosen && <LayerNumbers divergence={chosen} />}
            <div className="grid">
              {shown.map((info) => (
                <PanelCard
                  key={info.id}
                  {...shared}
                  info={info}
                  isStacked
                  {...(!isOverlaid && { onPick: pickStep })}
                  actions={info.id === HISTOGRAM && <StepReset step={shared.window.step} />}
                />
              ))}
            </div>
          </div>
        </div>
      )}
    </section>
  );
}

const ARRANGEMENTS = [
  { value: "side", text: "Side by side", title: "One chart for each run (o)" },
  { value: "overlay", text: "Overlay", title: "All runs in one chart (o)" },
] as const;

const GRADIENTS = [
  { value: "true", text: "As it is", title: "Without the loss scale, as runs compare (u)" },
  { value: "seen", text: "As FP16 sees it", title: "Times the loss scale (u)" },
] as const;

function summaryOf({ reason, num_common, num_frames, interval, first_step, first_layer, ...only }: Numerics): string {
  if (reason) return reason;
  const exactly = interval ? `, each ${formatCount(interval)} steps` : "";
  const parts = [
    `${formatCount(num_common)} layers in both, ${formatCount(num_frames)} sketched steps in both${exactly}`,
    first_step == null ? "none parts beyond noise" : `first to part: ${first_layer} at step ${formatCount(first_step)}`,
  ];
  if (only.only_baseline.length > 0) parts.push(`${formatCount(only.only_baseline.length)} only in the baseline`);
  if (only.only_member.length > 0) parts.push(`${formatCount(only.only_member.length)} only in this run`);
  return parts.join(" · ");
}

function LayerList({ numerics, layer }: { numerics: Numerics; layer: string }) {
  const phone = usePhone();
  const [isWhole, setIsWhole] = useState(false);
  const list = useRef<HTMLUListElement>(null);
  useRowKeys(list);
  const { layers } = numerics;
  const few = layers.slice(0, FEW_ROWS);
  const chosen = layers.find((one) => one.layer === layer);
  // What is chosen is always in sight.
  const rows = isWhole ? layers : chosen && !few.includes(chosen) ? [...few, chosen] : few;
  return (
    <div className={phone ? "" : "layers-side"}>
      <ul ref={list} className="worst-list divergence-list" data-testid="divergences">
        {rows.map((one) => (
          <li key={one.layer}>
            <button
              type="button"
              className="divergence-row"
              aria-pressed={one.layer === layer}
              title={one.layer}
              data-row
              onClick={() => setLayer(one.layer)}
            >
              <span className="mono worst-name">{shortenMiddle(one.layer, 30)}</span>
              <span className="mono divergence-bits">
                {one.distance_bits == null ? MISSING : `${formatCompact(one.distance_bits)} bits`}
              </span>
              <span className="muted divergence-what">{whatWords(one)}</span>
            </button>
          </li>
        ))}
      </ul>
      {layers.length > few.length && (
        <button type="button" className="link-button" onClick={() => setIsWhole(!isWhole)}>
          {isWhole ? "show the worst only" : `show all ${formatCount(layers.length)} layers`}
        </button>
      )}
    </div>
  );
}

const WHAT: Record<string, string> = {
  zeros: "more zeros",
  distance: "other sizes",
  norm: "another norm",
  nonfinite: "NaN or Inf",
  updates: "lost updates",
};

function whatWords({ first_step, what }: LayerDivergence): string {
  return first_step == null ? "within noise" : `${WHAT[what] ?? what} from step ${formatCount(first_step)}`;
}

/** All numbers of the chosen layer, the baseline's and the member's. */
function LayerNumbers({ divergence }: { divergence: LayerDivergence }) {
  const share = (value: number | null | undefined) => (value == null ? MISSING : formatShare(value));
  const pair = (baseline: number | null | undefined, own: number | null | undefined) =>
    baseline == null && own == null ? MISSING : `${share(baseline)} → ${share(own)}`;
  const { distance_bits, noise_bits, norm_ratio } = divergence;
  const entries = [
    [
      "Distance",
      distance_bits == null ? MISSING : `${formatCompact(distance_bits)} bits`,
      noise_bits == null ? "" : `noise ${formatCompact(noise_bits)}`,
    ],
    ["Norm", norm_ratio == null ? MISSING : formatRatio(norm_ratio), "of the baseline's"],
    ["Zeros", pair(divergence.baseline_zero_share, divergence.zero_share), ""],
    ["Underflow", share(divergence.underflow_share), ""],
    ["FP16 would lose", share(divergence.would_flush_share), "of the baseline's gradient, at least"],
    ["Lost updates", pair(divergence.baseline_lost_update_share, divergence.lost_update_share), ""],
  ].filter((entry): entry is [string, string, string] => entry[1] !== MISSING);
  return (
    <dl className="layer-numbers" data-testid="layer-numbers">
      <div className="layer-numbers-name">
        <dt className="sr-only">Layer</dt>
        <dd className="mono" title={divergence.layer}>
          {divergence.layer}
        </dd>
        <dd className="muted">{whatWords(divergence)}</dd>
      </div>
      {entries.map(([title, text, note]) => (
        <div key={title}>
          <dt className="muted">{title}</dt>
          <dd className="mono">{text}</dd>
          {note && <dd className="muted">{note}</dd>}
        </div>
      ))}
    </dl>
  );
}
