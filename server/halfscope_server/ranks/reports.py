"""Every run under judgement, and the newest report of each, for all who ask.

Owns the judges in memory and what they found and nobody has saved yet. Must not import fastapi. Invariant: a judge is
advanced by one thread at a time; a report that was made while data wait to be judged is not kept.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field

from halfscope_server.query.view import RunView
from halfscope_server.ranks.findings import Finding
from halfscope_server.ranks.following import Followed
from halfscope_server.ranks.judgement import Judgement
from halfscope_server.ranks.report import report
from halfscope_server.ranks.types import RanksReport
from halfscope_server.store.store import Store

MAX_HELD = 64
"""Runs in memory; those not asked for longest go, and go on from what was saved."""
QUICK_S = 0.1
"""A judge whose last turn took longer is advanced by the service alone: who asks for a page gets what is there."""
WAIT_S = 0.2
"""For the service, which may be at work on it."""
FEW_STREAMS = 64
PATIENCE_S = 5.0
"""What a turn costs of more streams is not known before the first: so long that one is left to the service, which may
be another server's."""
BUDGET_S = 0.5
"""Of processor time for one turn."""


@dataclass(slots=True)
class Held:
    """One run's judge."""

    followed: Followed
    version: int = 0
    """Of what was saved."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    waiting: list[Finding] = field(default_factory=list)
    """Found, and not saved."""
    cost_s: float = 0.0
    since_s: float = field(default_factory=time.monotonic)
    """Of this process's clock."""
    is_dirty: bool = False
    saved_us: int = 0
    judged: tuple[Judgement, dict[str, int]] = field(default_factory=lambda: (Judgement(), {}))
    """As of the last turn, for who cannot wait for the next one, and the cursors that it rests on; none: there was more
    to judge. One value, for it is read without the lock."""

    def advance(self, budget_s: float = BUDGET_S) -> None:
        """Judge what came; under the lock."""
        began_s = time.thread_time()
        before = {attempt: judge.next_step for attempt, judge in self.followed.judges.items()}
        self.waiting += self.followed.advance(budget_s=budget_s)
        after = {attempt: judge.next_step for attempt, judge in self.followed.judges.items()}
        self.is_dirty |= before != after or bool(self.waiting)
        self.judged = self.followed.judgement(), self.followed.versions
        self.cost_s = time.thread_time() - began_s


class Ranks:
    """See the module."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Held] = OrderedDict()

    def held(self, run_id: str) -> Held:
        """A run's judge: in memory, or going on from what was saved."""
        with self._lock:
            held = self._held.get(run_id)
            if held is not None:
                self._held.move_to_end(run_id)
                return held
        saved = self._store.ranks.load(run_id)
        held = Held(Followed(run_id=run_id, store=self._store))
        if saved is not None:
            held.followed.take(saved.body)
            held.version, held.saved_us = saved.version, saved.updated_us
        with self._lock:
            held = self._held.setdefault(run_id, held)
            while len(self._held) > MAX_HELD:
                self._held.popitem(last=False)
        return held

    def forget(self, run_id: str) -> None:
        """Begin anew from what was saved, when somebody asks again."""
        with self._lock:
            self._held.pop(run_id, None)

    def report(self, view: RunView) -> RanksReport:
        """Of a run as it is in a view."""
        if max((stream.world_size for stream in view.streams), default=1) < 2:
            return view.memo("ranks", lambda: report(view, self._store, Judgement()))
        held = self.held(view.run_id)
        is_quick = held.cost_s <= QUICK_S and (
            held.cost_s > 0 or len(view.streams) <= FEW_STREAMS or time.monotonic() - held.since_s > PATIENCE_S
        )
        if not _has(held.judged[1], view.versions) and is_quick and held.lock.acquire(timeout=WAIT_S):
            try:
                held.advance()
            finally:
                held.lock.release()
        judged, judged_to = held.judged
        if not _has(judged_to, view.versions):
            return report(view, self._store, judged)
        return view.memo("ranks", lambda: report(view, self._store, judged))


def _has(taken: dict[str, int], wanted: dict[str, int]) -> bool:
    """Whether everything of one vector of cursors is in another."""
    return bool(taken) and all(taken.get(stream, -1) >= number for stream, number in wanted.items())
