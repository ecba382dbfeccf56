/** Short names for the generated types. Hand-written types of server data have no place in this app. */

import type { Readable } from "openapi-typescript-helpers";
import type { components } from "./schema";

/** As answers are read: openapi-fetch maps its answers the same way. */
type Schemas = Readable<components["schemas"]>;

export type Chip = Schemas["Chip"];
export type ClientMessage = Schemas["ClientMessage"];
export type EventItem = Schemas["EventItem"];
export type EventKind = Schemas["EventKind"];
export type EventPage = Schemas["EventPage"];
export type Health = Schemas["Health"];
export type LayerNode = Schemas["LayerNode"];
export type LayerStat = Schemas["LayerStat"];
export type LayerTree = Schemas["LayerTree"];
export type LiveError = Schemas["LiveError"];
export type LiveRun = Schemas["LiveRun"];
export type PanelFigure = Schemas["PanelFigure"];
export type PanelFill = Schemas["PanelFill"];
export type PanelInfo = Schemas["PanelInfo"];
export type Problem = Schemas["Problem"];
export type RugMark = Schemas["RugMark"];
export type RunList = Schemas["RunList"];
export type RunSummary = Schemas["RunSummary"];
export type ServerMessage = Schemas["ServerMessage"];
export type Strip = Schemas["Strip"];
export type StripRange = Schemas["StripRange"];
export type Table = Schemas["Table"];
export type Theme = Schemas["Theme"];
/** Every key given, so that equal windows have equal cache keys. */
export type Window = Required<Schemas["Window"]>;

/** A measured number: finite, the name of what it is instead, or null where there is none. */
export type Num = RunSummary["loss"];
export type Severity = EventItem["severity"];
