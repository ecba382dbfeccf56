/** Rules: those there are, the presets to take over, and all of them as YAML. */

import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import type { RuleItem, RuleList } from "../api/types";
import { formatAge, formatCount, formatTime } from "../lib/format";
import { useNow } from "../lib/hooks";
import { Link, navigate } from "../lib/router";
import { useRowKeys } from "../lib/rows";
import { DeleteDialog } from "../ui/confirm";
import { Icon } from "../ui/icons";
import { ActionMenu } from "../ui/overlays";
import { EmptyState, FailedState, Loading } from "../ui/states";
import { toast } from "../ui/toast";
import { fullRule } from "./draft";
import { Presets, TakeOverButton } from "./Presets";
import { rulesQuery, useDeleteRule, useSaveRule } from "./queries";
import { SilenceDialog } from "./SilenceDialog";
import { ruleWords } from "./words";
import { YamlDialog } from "./YamlDialog";

export function RulesTab() {
  const { data: list, error, refetch } = useQuery(rulesQuery);
  const [yaml, setYaml] = useState(false);
  if (!list) return error ? <FailedState error={error} onRetry={refetch} /> : <Loading what="the rules" />;
  return (
    <>
      <div className="toolbar">
        <Link to="/alerts/rules/new" className="button primary">
          <Icon name="plus" className="small" />
          New rule
        </Link>
        <span className="push" />
        <button type="button" className="button" onClick={() => setYaml(true)}>
          YAML
        </button>
      </div>
      {list.rules.length === 0 ? <NoRules /> : <Rules list={list} />}
      <Presets />
      {yaml && <YamlDialog onClose={() => setYaml(false)} />}
    </>
  );
}

function NoRules() {
  return (
    <EmptyState title="No rules yet">
      <p>
        The recommended set watches for NaN and Inf, a collapsing loss scale, underflow, a broken loss, and runs that
        stall. It is made for healthy trainings to raise nothing. Each can be changed or switched off afterwards.
      </p>
      <TakeOverButton />
    </EmptyState>
  );
}

function Rules({ list }: { list: RuleList }) {
  const now = useNow(5000);
  const rows = useRef<HTMLUListElement>(null);
  useRowKeys(rows);
  return (
    <ul className="plain-rows" ref={rows} data-testid="rules" aria-label="Rules">
      {list.rules.map((item) => (
        <RuleRow key={item.rule.id} item={item} now={now} />
      ))}
    </ul>
  );
}

function RuleRow({ item, now }: { item: RuleItem; now: number }) {
  const rule = fullRule(item.rule);
  const [dialog, setDialog] = useState<"delete" | "silence" | null>(null);
  const save = useSaveRule();
  const fail = (error: Error) => toast(error.message, { isError: true });
  const setEnabled = (enabled: boolean) =>
    save.mutate({ rule: { ...rule, enabled }, version: item.version }, { onError: fail });
  const place = `/alerts/rules/${encodeURIComponent(rule.id)}`;
  return (
    <li className="rule-row" data-testid={`rule-${rule.id}`} data-off={rule.enabled ? undefined : true}>
      <label className="check rule-switch">
        <input
          type="checkbox"
          checked={rule.enabled}
          disabled={save.isPending}
          onChange={(event) => setEnabled(event.target.checked)}
          aria-label={`${rule.name} is on`}
        />
      </label>
      <span className={`alert-icon severity-${rule.severity}`} title={rule.severity}>
        <Icon name={rule.severity} />
        <span className="sr-only">{rule.severity}</span>
      </span>
      <div className="alert-main">
        <Link to={place} className="run-link" data-row>
          {rule.name}
        </Link>
        <p className="muted">{item.sentence}</p>
        {item.error && <p className="form-error">{item.error}</p>}
      </div>
      <p className="rule-status">
        {item.firing > 0 ? (
          <Link to="/alerts">{ruleWords(item)}</Link>
        ) : (
          <span className="muted">{ruleWords(item)}</span>
        )}
        {item.last_fired_us !== null && (
          <span className="muted" title={formatTime(item.last_fired_us).text}>
            fired {formatAge(item.last_fired_us, now)} ago
          </span>
        )}
      </p>
      <ActionMenu
        label={`Actions for ${rule.name}`}
        actions={[
          { id: "edit", text: "Edit", onAction: () => navigate(place) },
          {
            id: "copy",
            text: "Make a copy",
            onAction: () => navigate(`/alerts/rules/new?from=${encodeURIComponent(rule.id)}`),
          },
          { id: "silence", text: "Silence…", onAction: () => setDialog("silence") },
          {
            id: "history",
            text: "History",
            onAction: () => navigate(`/alerts/history?rule=${encodeURIComponent(rule.id)}`),
          },
          { id: "delete", text: "Delete…", danger: true, onAction: () => setDialog("delete") },
        ]}
      />
      {dialog === "silence" && (
        <SilenceDialog
          title="Silence a rule"
          subject={{ rule: rule.id, ruleName: rule.name, run: "", runName: "", layer: "" }}
          parts={["rule"]}
          onClose={() => setDialog(null)}
        />
      )}
      {dialog === "delete" && <DeleteRuleDialog item={item} onClose={() => setDialog(null)} />}
    </li>
  );
}

export function DeleteRuleDialog({ item, onClose }: { item: RuleItem; onClose: () => void }) {
  const remove = useDeleteRule();
  return (
    <DeleteDialog
      what="rule"
      remove={remove}
      onClose={onClose}
      onDelete={() =>
        remove.mutate(item.rule.id, {
          onSuccess: () => {
            toast(`Deleted ${item.rule.name}`);
            onClose();
            navigate("/alerts/rules");
          },
        })
      }
    >
      <strong>{item.rule.name}</strong> is deleted for good.
      {item.firing > 0 &&
        ` ${item.firing === 1 ? "The alert that it fires is" : `The ${formatCount(item.firing)} alerts that it fires are`} resolved.`}{" "}
      What it found stays in the history.
    </DeleteDialog>
  );
}
