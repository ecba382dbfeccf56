"""One rank's lines against the band of all others, for the page that looks at one rank.

Must not import fastapi. Invariant: without a rank to look at, a line is that of the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from halfscope_server.panels.lines import LinePanel
from halfscope_server.panels.rank_heat import has_ranks
from halfscope_server.query.view import RunView

SECTION = "one rank"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLines(LinePanel):
    """Of runs with several ranks alone."""

    section: str = SECTION
    columns: int = 6
    folded_on_phone: bool = False

    def available(self, view: RunView) -> bool:
        return has_ranks(view) and bool(self.found(view))
