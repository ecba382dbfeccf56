"""The thread that judges ranks on what is committed, and writes what was found into the runs' own events.

Must not be waited for by whoever commits. Invariant: how far a run is judged and what was found on the way are saved in
one transaction; so each thing is told once, by whatever server, however often it was killed, with alert rules or
without.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from halfscope_server.errors import Unavailable
from halfscope_server.query.summary import now_us as wall_clock_us
from halfscope_server.ranks.findings import Finding
from halfscope_server.ranks.reports import Held, Ranks
from halfscope_server.ranks.stuck import Missing, Stuck, places
from halfscope_server.store.leading import Leader
from halfscope_server.store.rank_states import RankEvent
from halfscope_server.store.store import Store
from halfscope_server.store.types import Applied, noted

log = logging.getLogger(__name__)

ROUND_S = 0.5
"""Least time between two rounds."""
BUSY_SHARE = 0.15
"""Of one thread's time."""
LOOK_S = 1.0
"""How often runs are looked at without a hint: lost hints, other servers' writes, and ranks that stand still."""
SAVE_US = 30_000_000
"""How much is judged again after a crash, at most; with the same result."""
LEASE = "ranks"
REST_S = 60.0
"""After the judgement of a run failed in a way nobody foresaw."""


@dataclass(slots=True, kw_only=True)
class RankMetrics:
    """Counters since the server started."""

    rounds: int = 0
    judge_s: float = 0.0
    found: int = 0
    errors: int = 0
    """Each is in the log."""


class RankService:
    """See the module.

    Args:
        store: data, and where findings go.
        ranks: the judges, shared with the pages.
        tell: told of runs into which something was written, in this thread.
        clock_us: wall clock, microseconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        ranks: Ranks,
        *,
        tell: Callable[[list[Applied]], object] = lambda _applied: None,
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._store, self._ranks, self._tell, self._clock_us = store, ranks, tell, clock_us
        self._stuck, self._missing = Stuck(partial(places, store)), Missing()
        self._changed = threading.Condition()
        self._hinted: set[str] = set()
        self._is_closed = False
        self._followed: set[str] = set()
        """Runs of more than one process that are not judged to their end."""
        self._resting: dict[str, int] = {}
        self._look_at_us = 0
        self._leader = Leader(store, LEASE)
        self._metrics = RankMetrics()
        self._thread = threading.Thread(target=self._work, name="halfscope-ranks", daemon=True)

    # ---- any thread ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; what was committed before is caught up with."""
        self._thread.start()

    def stop(self) -> None:
        """Judge what came, save, and let another server go on."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        try:
            self.round(is_last=True)
            self._leader.resign(self._clock_us())
        except Exception:
            self._metrics.errors += 1
            log.exception("ranks: the newest judgements were not saved; they are repeated at the next start")

    def notify(self, applied: Iterable[Applied]) -> None:
        """A group commit brought something; called by the writer after COMMIT."""
        self.changed({one.run_id for one in applied})

    def changed(self, run_ids: Collection[str]) -> None:
        """These runs have news."""
        with self._changed:
            self._hinted.update(run_ids)
            self._changed.notify_all()

    def metrics(self) -> RankMetrics:
        """The counters as they are now."""
        return replace(self._metrics)

    # ---- the thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                self.round()
            except Unavailable:
                self._metrics.errors += 1
                log.warning("ranks: the database does not answer; judgement goes on when it does", exc_info=True)
            except Exception:
                self._metrics.errors += 1
                log.exception("ranks: unexpected error; judgement goes on")
            cost_s = time.monotonic() - began_s
            with self._changed:
                self._changed.wait_for(lambda: self._is_closed, max(ROUND_S, cost_s * (1 / BUSY_SHARE - 1)))
                if not self._is_closed and not self._hinted & self._followed:
                    self._changed.wait_for(
                        lambda: self._is_closed or bool(self._hinted & self._followed), max(0.0, LOOK_S - ROUND_S)
                    )
                if self._is_closed:
                    return

    def round(self, *, is_last: bool = False) -> None:
        """Judge what came, look at the clock, save. The thread's work, for tests to call."""
        now_us = self._clock_us()
        if not self._lead(now_us):
            return
        with self._changed:
            hinted, self._hinted = self._hinted, set()
        is_time = is_last or now_us >= self._look_at_us
        if is_time:
            self._look_at_us = now_us + int(LOOK_S * 1e6)
            self._followed = self._store.ranks.unjudged()
        began_s = time.thread_time()
        for run_id in sorted(self._followed if is_time else hinted & self._followed):
            if self._resting.get(run_id, 0) <= now_us:
                self._judge(run_id, now_us, is_last=is_last)
        self._metrics.rounds += 1
        self._metrics.judge_s += time.thread_time() - began_s

    def _lead(self, now_us: int) -> bool:
        """Whether this server judges."""
        if self._leader.ask(now_us) and self._leader.leads:
            # What pages here have found meanwhile is saved by nobody: begin from what was saved.
            for run_id in self._store.ranks.unjudged():
                self._ranks.forget(run_id)
        return self._leader.leads

    def _judge(self, run_id: str, now_us: int, *, is_last: bool) -> None:
        try:
            held = self._ranks.held(run_id)
            with held.lock:
                held.advance()
                self._ask_the_clock(held, now_us)
                self._save(held, now_us, is_last=is_last)
        except Unavailable:
            raise
        except Exception:
            self._metrics.errors += 1
            log.exception("ranks: the run %s could not be judged; it is tried again", run_id)
            self._ranks.forget(run_id)
            self._resting[run_id] = now_us + int(REST_S * 1e6)

    def _ask_the_clock(self, held: Held, now_us: int) -> None:
        followed = held.followed
        if followed.is_over:
            self._stuck.forget(followed.run_id)
        elif (stuck := self._stuck.found(followed.run_id, followed.members, now_us=now_us)) is not None:
            held.waiting.append(stuck)
        if (absent := self._missing.found(followed, now_us=now_us)) is not None:
            held.waiting.append(absent)

    def _save(self, held: Held, now_us: int, *, is_last: bool) -> None:
        followed = held.followed
        is_done = followed.is_over and bool(followed.versions) and not followed.missing_unsaid
        if not held.waiting and not is_done and not (held.is_dirty and (is_last or now_us - held.saved_us >= SAVE_US)):
            return
        written = self._store.ranks.save(
            followed.run_id,
            held.version,
            followed.packed(),
            [_event(one) for one in held.waiting],
            is_done=is_done,
            now_us=now_us,
        )
        if written is None:
            self._ranks.forget(followed.run_id)
            return
        held.version += 1
        held.waiting, held.is_dirty, held.saved_us = [], False, now_us
        self._metrics.found += written
        if written:
            self._tell([noted(followed.run_id)])


def _event(found: Finding) -> RankEvent:
    ranks: Sequence[int] = found.attributes.get("ranks", ())
    return RankEvent(
        attempt=found.attempt,
        step=found.step,
        kind=found.kind,
        severity=found.severity,
        key=found.key,
        rank=int(found.attributes.get("rank", ranks[0] if ranks else 0)),
        attributes=found.attributes,
    )
