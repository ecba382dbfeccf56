/** The panels of the Ranks page, which the Overview leaves to it. */

import type { PanelInfo } from "../api/types";

export const RANKS_SECTION = "ranks";
/** One rank's lines among those of the others. */
export const ONE_RANK_SECTION = "one rank";
/** Whether a chart's rows are ranks: others are of buckets. */
export const isOfRanks = ({ id }: PanelInfo) => id.startsWith("ranks-");
export const OF_RANKS: readonly string[] = [RANKS_SECTION, ONE_RANK_SECTION];
