"""One comparison: runs beside each other at one moment, each part worked out once for all who ask.

Owns the members' views, the memo of what is computed from them, and the wiring of the parts (fairness, quality, cost,
stability, numerics, verdict). Must not import plotly, fastapi or the store's tables. Invariant: a comparison never
changes; data that come later make another one, and what was computed of a pair that did not change is not computed
again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TypeVar

from halfscope_server.compare import cost, fairness, numerics, quality, stability
from halfscope_server.compare import members as membership
from halfscope_server.compare.types import (
    MAX_MEMBERS,
    Cost,
    Fairness,
    Member,
    Numerics,
    Options,
    Outcome,
    Quality,
    Report,
    Stability,
    Verdict,
)
from halfscope_server.errors import InvalidRequest, NotFound, RunDeleted
from halfscope_server.query.memo import Memo
from halfscope_server.query.view import RunView, Views

T = TypeVar("T")

LIVE_STATES = ("waiting", "live")


class Comparison:
    """Two to eight runs, the baseline first; see the module."""

    def __init__(self, views: Sequence[RunView], options: Options | None = None) -> None:
        self.views = tuple(views)
        asked = options or Options()
        self.options = replace(asked, metric=membership.metric_of(self.views, asked.metric))
        self.metric_asked = asked.metric
        """Of runs without a loss another metric is compared."""
        self.key = ",".join(view.run_id for view in self.views)
        """Which comparison this is: run ids joined by commas."""
        self._memo = Memo()

    @property
    def baseline(self) -> RunView:
        return self.views[0]

    @property
    def is_live(self) -> bool:
        """Whether any member may still get data."""
        return any(view.row.state in LIVE_STATES for view in self.views)

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        """What `compute` gave for `key`; computed by one thread, once."""
        return self._memo.get(key, compute)

    def against(self, index: int) -> Comparison:
        """The other way round: a member as the baseline, and the baseline held against it."""
        return self.memo(("against", index), lambda: Comparison((self.views[index], self.baseline), self.options))

    def memo_pair(self, index: int, key: Hashable, compute: Callable[[], T]) -> T:
        """Likewise of one member and the baseline alone: kept on while neither has new data, whatever others do.

        Args:
            index: the member's place, 1 or more.
            key: must hold every option that it depends on.
            compute: must look at these two views only, and at nothing of their rows.
        """
        other = self.views[index]
        return self.baseline.memo(("pair", other.run_id, tuple(sorted(other.versions.items())), key), compute)

    # ---- parts, each by member ------------------------------------------------------------------

    @property
    def members(self) -> list[Member]:
        return self.memo("members", lambda: membership.describe(self))

    @property
    def fairness(self) -> Fairness:
        return self.memo("fairness", lambda: fairness.judge(self))

    @property
    def quality(self) -> list[Quality]:
        return self.memo("quality", lambda: quality.assess(self))

    @property
    def cost(self) -> list[Cost]:
        return self.memo("cost", lambda: cost.measure(self))

    @property
    def stability(self) -> list[Stability]:
        return self.memo("stability", lambda: stability.count(self))

    @property
    def numerics(self) -> list[Numerics]:
        return self.memo("numerics", lambda: numerics.diverge(self))

    @property
    def verdict(self) -> tuple[list[Verdict], str, Outcome]:
        """What is said of each member but the baseline; the sentence at the top; the outcome it tells."""
        from halfscope_server.compare import verdict

        judged: tuple[list[Verdict], str, Outcome] = self.memo("verdict", lambda: verdict.judge(self))
        return judged

    @property
    def report(self) -> Report:
        """All of it."""
        return self.memo("report", self._report)

    def _report(self) -> Report:
        verdicts, sentence, outcome = self.verdict
        return Report(
            key=self.key,
            options=self.options,
            members=self.members,
            metrics=membership.metrics(self.views),
            sentence=sentence,
            outcome=outcome,
            is_live=self.is_live,
            fairness=self.fairness,
            quality=self.quality,
            cost=self.cost,
            stability=self.stability,
            numerics=self.numerics,
            verdicts=verdicts,
        )


class Comparisons:
    """The newest comparison of each choice of runs and options, kept while its runs stay the same."""

    def __init__(self, views: Views, limit: int = 32) -> None:
        """
        Args:
            limit: comparisons kept; the one not asked for longest goes first.
        """
        self.views = views
        self._limit = limit
        self._lock = threading.Lock()
        self._held: OrderedDict[tuple[tuple[str, ...], Options], Comparison] = OrderedDict()

    def get(self, run_ids: Sequence[str], options: Options | None = None) -> Comparison:
        """These runs as they are now, the first as the baseline.

        Raises:
            InvalidRequest: fewer than two, more than eight, or one of them twice.
            RunDeleted: one of them is gone.
            NotFound: one of them never was.
        """
        chosen, options = tuple(run_ids), options or Options()
        _check(chosen)
        views = tuple(self._view(run_id) for run_id in chosen)
        with self._lock:
            held = self._held.get((chosen, options))
            if held is None or any(new is not old for new, old in zip(views, held.views, strict=True)):
                held = self._held[chosen, options] = Comparison(views, options)
            self._held.move_to_end((chosen, options))
            while len(self._held) > self._limit:
                self._held.popitem(last=False)
        return held

    def _view(self, run_id: str) -> RunView:
        view = self.views.get(run_id)
        if view is not None:
            return view
        deleted = self.views.store.deleted_run(run_id)
        if deleted is not None:
            raise RunDeleted(run_id, *deleted)
        raise NotFound(f"there is no run {run_id} here to compare; expected the id of one in the list of runs")


def _check(run_ids: tuple[str, ...]) -> None:
    twice = sorted({run_id for run_id in run_ids if run_ids.count(run_id) > 1})
    if twice:
        raise InvalidRequest(f"run {twice[0]} was given twice; a run is compared with others, each given once")
    if len(run_ids) < 2:
        given = f"only run {run_ids[0]} was given" if run_ids else "no run was given"
        raise InvalidRequest(f"{given}; a comparison takes a baseline and at least one other run")
    if len(run_ids) > MAX_MEMBERS:
        raise InvalidRequest(
            f"{len(run_ids)} runs were given; at most {MAX_MEMBERS} are compared at once, leave some out"
        )
