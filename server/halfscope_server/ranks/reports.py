"""The newest report of each run, for all who ask.

Must not import fastapi. Invariant: a report is worked out once for a version of its run.
"""

from __future__ import annotations

from halfscope_server.query.view import RunView
from halfscope_server.ranks.judgement import Judgement
from halfscope_server.ranks.report import report
from halfscope_server.ranks.types import RanksReport
from halfscope_server.store.store import Store


class Ranks:
    """What the API and the live hub ask."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def report(self, view: RunView) -> RanksReport:
        """Of a run as it is in a view."""
        return view.memo("ranks", lambda: report(view, self._store, Judgement()))
