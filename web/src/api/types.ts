/** Short names for the generated types. Hand-written types of server data have no place in this app. */

import type { Readable } from "openapi-typescript-helpers";
import type { components } from "./schema";

/** As answers are read: openapi-fetch maps its answers the same way. */
type Schemas = Readable<components["schemas"]>;

export type AlertBand = Schemas["AlertBand"];
export type AlertCounts = Schemas["AlertCounts"];
export type AlertItem = Schemas["AlertItem"];
export type AlertList = Schemas["AlertList"];
export type Backtest = Schemas["Backtest"];
export type BacktestRun = Schemas["BacktestRun"];
export type Candidate = Schemas["Candidate"];
export type ChannelBody = Schemas["ChannelBody"];
export type ChannelItem = Schemas["ChannelItem"];
export type ChannelKind = Schemas["ChannelKind"];
export type ChannelList = Schemas["ChannelList"];
export type Chip = Schemas["Chip"];
export type ClientMessage = Schemas["ClientMessage"];
/** As asked for: what is left out is the server's to choose, and its report says what that was. */
export type CompareOptions = Partial<Schemas["CompareOptions"]>;
export type CompareReport = Schemas["Report"];
export type Cost = Schemas["Cost"];
export type Estimate = Schemas["Estimate"];
export type EventItem = Schemas["EventItem"];
export type EventKind = Schemas["EventKind"];
export type EventPage = Schemas["EventPage"];
export type Fairness = Schemas["Fairness"];
export type FairnessItem = Schemas["FairnessItem"];
export type Health = Schemas["Health"];
export type LayerDivergence = Schemas["LayerDivergence"];
export type LayerNode = Schemas["LayerNode"];
export type LayerStat = Schemas["LayerStat"];
export type LayerTree = Schemas["LayerTree"];
export type ImportResult = Schemas["ImportResult"];
export type LiveError = Schemas["LiveError"];
export type LiveRun = Schemas["LiveRun"];
export type Member = Schemas["Member"];
export type MetricItem = Schemas["MetricItem"];
export type NoticeItem = Schemas["NoticeItem"];
export type Numerics = Schemas["Numerics"];
export type PanelFigure = Schemas["PanelFigure"];
export type PanelFill = Schemas["PanelFill"];
export type PanelInfo = Schemas["PanelInfo"];
export type Preset = Schemas["Preset"];
export type Problem = Schemas["Problem"];
export type Quality = Schemas["Quality"];
export type RankAgreement = Schemas["Agreement"];
export type RankBucket = Schemas["Bucket"];
export type RankRow = Schemas["RankRow"];
export type RanksReport = Schemas["RanksReport"];
export type Reason = Schemas["Reason"];
export type RugMark = Schemas["RugMark"];
/** Every key given: what is left out would be filled in by the server, and the editor shows all. */
export type Rule = Required<Omit<Schemas["Rule"], "scope">> & { scope: Required<Schemas["Scope"]> };
export type RuleItem = Schemas["RuleItem"];
export type RuleList = Schemas["RuleList"];
export type RuleProblem = Schemas["RuleProblem"];
export type RuleVocabulary = Schemas["RuleVocabulary"];
export type RunList = Schemas["RunList"];
export type RunSummary = Schemas["RunSummary"];
export type SaveComparison = Schemas["SaveComparison"];
export type SavedComparison = Schemas["SavedComparison"];
export type ServerMessage = Schemas["ServerMessage"];
export type SilenceBody = Schemas["SilenceBody"];
export type SilenceItem = Schemas["SilenceItem"];
export type Span = Schemas["Span"];
export type Stability = Schemas["Stability"];
export type Strip = Schemas["Strip"];
export type StripRange = Schemas["StripRange"];
export type Table = Schemas["Table"];
export type Theme = Schemas["Theme"];
export type Verdict = Schemas["Verdict"];
/** Every key given, so that equal windows have equal cache keys. */
export type Window = Required<Schemas["Window"]>;

/** A measured number: finite, the name of what it is instead, or null where there is none. */
export type Num = RunSummary["loss"];
export type Severity = EventItem["severity"];
