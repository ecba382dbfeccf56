/** Alerts: what fires, what has been, the rules, and where notifications go. */

import { useQuery } from "@tanstack/react-query";
import { TopBarContent } from "../frame/top-bar";
import { formatCount } from "../lib/format";
import { useTitle } from "../lib/hooks";
import { useKeys } from "../lib/keys";
import { Link, navigate } from "../lib/router";
import { ListPill } from "../run/LivePill";
import { ChannelsTab } from "./ChannelsTab";
import { FiringTab } from "./FiringTab";
import { HistoryTab } from "./HistoryTab";
import { countsQuery, rulesQuery } from "./queries";
import { RuleEditorPage } from "./RuleEditor";
import { RulesTab } from "./RulesTab";

const TABS = [
  { id: "", title: "Firing" },
  { id: "history", title: "History" },
  { id: "rules", title: "Rules" },
  { id: "channels", title: "Channels" },
] as const;

const addressOf = (id: string) => (id ? `/alerts/${id}` : "/alerts");

/** @param rule id of the rule that is edited, `new` for a new one; undefined: none is. */
export function AlertsPage({ tab, rule }: { tab: string; rule: string | undefined }) {
  const current = TABS.find(({ id }) => id === tab) ?? TABS[0];
  const { data: counts } = useQuery(countsQuery);
  useTitle(current.id === "" ? "Alerts" : `${current.title} · Alerts`);
  useKeys(Object.fromEntries(TABS.map(({ id }, at) => [String(at + 1), () => navigate(addressOf(id))])));
  const isEditing = current.id === "rules" && rule !== undefined;
  const { data: rules } = useQuery({ ...rulesQuery, enabled: isEditing });
  const ruleName = rules?.rules.find((item) => item.rule.id === rule)?.rule.name ?? rule;
  return (
    <>
      <TopBarContent
        crumbs={
          current.id === ""
            ? [{ text: "Alerts" }]
            : [
                { text: "Alerts", to: "/alerts" },
                ...(isEditing
                  ? [{ text: "Rules", to: "/alerts/rules" }, { text: rule === "new" ? "New rule" : (ruleName ?? "") }]
                  : [{ text: current.title }]),
              ]
        }
        pill={<ListPill />}
      />
      <h1 className="sr-only">{isEditing ? "Rule" : `Alerts: ${current.title}`}</h1>
      <nav className="tabs alerts-tabs" aria-label="Alerts">
        {TABS.map(({ id, title }) => (
          <Link key={id} to={addressOf(id)} className="tab" aria-current={id === current.id ? "page" : undefined}>
            {title}
            {id === "" && counts && counts.firing > 0 && <span className="count">{formatCount(counts.firing)}</span>}
          </Link>
        ))}
      </nav>
      {current.id === "" && <FiringTab />}
      {current.id === "history" && <HistoryTab />}
      {current.id === "rules" && (isEditing ? <RuleEditorPage key={rule} id={rule} /> : <RulesTab />)}
      {current.id === "channels" && <ChannelsTab />}
    </>
  );
}
