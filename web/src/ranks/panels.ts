/** The panels of the Ranks page, which the Overview leaves to it. */

export const RANKS_SECTION = "ranks";
/** One rank's lines among those of the others. */
export const ONE_RANK_SECTION = "one rank";
export const OF_RANKS: readonly string[] = [RANKS_SECTION, ONE_RANK_SECTION];
