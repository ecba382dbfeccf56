"""The thread that evaluates rules on what is committed, beside the commit path.

Owns the queue of what group commits brought, who of several servers evaluates, when evaluations are saved, and the one
question to the clock: whether a training stalls. Deciding what is sent is `routing`'s, one run's evaluation is
`following`'s. Invariants: whoever commits is never waited for: what does not fit into the queue is read from the store
later; episodes, notifications and how far evaluation is are saved in one transaction, so nothing is found twice, by
whatever server, however often it was killed.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from halfscope_server.alerts import routing
from halfscope_server.alerts.following import MAX_OPEN, OPEN, Baseline, Followed, Saved, find_broken
from halfscope_server.alerts.inbox import Inbox
from halfscope_server.alerts.routing import Around
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.stalls import Stalls
from halfscope_server.alerts.validation import InvalidRule, parse
from halfscope_server.errors import Unavailable
from halfscope_server.query.summary import now_us as wall_clock_us
from halfscope_server.store.episodes import Evaluation
from halfscope_server.store.leading import Leader
from halfscope_server.store.pulses import Pulse
from halfscope_server.store.store import Store
from halfscope_server.store.types import Applied, EpisodeRow, NoticeRow, RuleRow
from halfscope_server.store.updates import Brought

log = logging.getLogger(__name__)

ROUND_S = 0.25
"""Least time between two evaluations of a run: a step is judged so long after its commit at most, if all is well."""
MAX_ROUND_S = 1.2
"""With what comes before and after it, two seconds from a step to its notification also on a server that is busy."""
BUSY_SHARE = 0.15
"""Of one thread's time, while rounds can be put off to at most MAX_ROUND_S."""
LOOK_S = 2.0
"""How often runs are looked at without a hint: covers lost hints, other servers' writes, and a clock that goes on."""
UNFINISHED_S = 30.0
"""How often runs that are over are asked for of which not everything was evaluated."""
CHECKPOINT_S = 5.0
"""How far behind the page may be that shows how an open episode goes on."""
QUIET_CHECKPOINT_S = 30.0
"""How much is evaluated again after a crash, at most: with the same result, so that only reading it costs anything."""
RETRY_S = 2.0
"""After the database did not answer."""
REST_S = 60.0
"""After the evaluation of a run failed in a way nobody foresaw."""
LEASE = "alerts"
MAX_FIRING = 1000
"""Episodes that are looked at for repetitions and for silences that are over."""


@dataclass(slots=True, kw_only=True)
class AlertMetrics:
    """Counters since the server started; the last three are of now."""

    updates: int = 0
    """Times a run was evaluated on something new."""
    evaluate_s: float = 0.0
    catch_ups: int = 0
    """Times a run was read from the store, because something was missing in between."""
    saves: int = 0
    save_s: float = 0.0
    fired: int = 0
    resolved: int = 0
    notices: int = 0
    stalls: int = 0
    overflows: int = 0
    """Group commits that did not fit into the queue."""
    errors: int = 0
    """Failures of evaluation or of the database; each is in the log."""
    queue_bytes: int = 0
    runs: int = 0
    """Under evaluation here."""
    is_evaluating: int = 0
    """1 on the one server that does."""


class AlertService:
    """See the module.

    Args:
        store: rules, data and episodes.
        on_episodes: told of episodes that changed, after they were saved, in this thread; must return at once.
        on_notices: told that something was put into the outbox; likewise.
        baseline: what `ratio` compares with.
        base_url: where people open the server, for links; empty: unknown.
        stall_s: how long no step may be completed before a training counts as stalled, at least.
        clock_us: wall clock, microseconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        *,
        on_episodes: Callable[[Sequence[EpisodeRow]], object] = lambda _rows: None,
        on_notices: Callable[[], object] = lambda: None,
        baseline: Baseline = lambda _rule: None,
        base_url: str = "",
        stall_s: float = 600.0,
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._store, self._alerts = store, store.alerts
        self._on_episodes, self._on_notices = on_episodes, on_notices
        self._baseline, self._base_url, self._clock_us = baseline, base_url, clock_us
        self._stalls = Stalls(least_s=stall_s, started_us=clock_us())
        self._inbox = Inbox()
        self._thread = threading.Thread(target=self._work, name="halfscope-alerts", daemon=True)
        self._metrics = AlertMetrics()
        self._rules: list[tuple[RuleRow, Rule]] = []
        self._rule_versions: list[tuple[str, int]] = []
        self._followed: dict[str, Followed] = {}
        self._leader = Leader(store, LEASE)
        self._look_at_us = 0
        self._unfinished_at_us = 0
        """0: nothing is known yet of what is in the store."""
        self._resting: dict[str, int] = {}
        """Runs whose evaluation failed -> when it is tried again."""
        self._broken: dict[str, dict[tuple[str, int], str]] = {}
        """Run -> (id, version) of rules whose evaluation fails on it, and how."""

    # ---- any thread ----------------------------------------------------------------------------

    def start(self) -> None:
        """Begin; what was committed before is caught up with."""
        self._thread.start()

    def stop(self) -> None:
        """Evaluate what was handed over, save, and let another server go on at once."""
        self._inbox.close()
        if self._thread.is_alive():
            self._thread.join()
        self._end()

    def notify(self, applied: Iterable[Applied]) -> None:
        """A group commit brought something; called by the writer after COMMIT."""
        self._inbox.put(applied)

    def changed(self, run_ids: Collection[str]) -> None:
        """Another server wrote into these runs, or somebody renamed, tagged or deleted them here."""
        self._inbox.hint(run_ids)

    def rules_changed(self) -> None:
        """A rule was made, changed or deleted here; another server's change is noticed within LOOK_S."""
        self._inbox.note_rules()

    def metrics(self) -> AlertMetrics:
        """The counters as they are now."""
        return replace(
            self._metrics,
            overflows=self._inbox.num_overflows,
            queue_bytes=self._inbox.num_bytes,
            runs=len(self._followed),
            is_evaluating=int(self._leader.leads),
        )

    # ---- the thread ----------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            began_s = time.monotonic()
            try:
                self.round()
                wait_s = 0.0
            except Unavailable:
                self._metrics.errors += 1
                log.warning("alerts: the database does not answer; evaluation goes on when it does", exc_info=True)
                self._forget()
                wait_s = RETRY_S
            except Exception:
                self._metrics.errors += 1
                log.exception("alerts: unexpected error; evaluation begins anew from what was saved")
                self._forget()
                wait_s = RETRY_S
            cost_s = time.monotonic() - began_s
            if not self._inbox.wait(max(wait_s, pause_s(cost_s)), LOOK_S):
                return

    def _end(self) -> None:
        try:
            self.round(is_last=True)
            self._leader.resign(self._clock_us())
        except Exception:
            self._metrics.errors += 1
            log.exception("alerts: the newest evaluations were not saved; they are repeated at the next start")

    def _forget(self) -> None:
        """Begin anew from what was saved: nothing that is in memory is sure any more."""
        self._followed.clear()
        self._look_at_us = self._unfinished_at_us = 0

    def round(self, *, is_last: bool = False) -> None:
        """Take what waits, evaluate it, save what follows from it. The thread's work, for tests to call."""
        now_us = self._clock_us()
        if not self._lead(now_us):
            return
        taken = self._inbox.take()
        is_time = now_us >= self._look_at_us
        if taken.are_rules_stale or is_time:
            self._read_rules()
        self._inbox.takes_records = bool(self._rules)
        if not self._rules and not self._followed and self._unfinished_at_us:
            return
        if is_time:
            self._look_at_us = now_us + int(LOOK_S * 1e6)
            taken.hinted |= self._look(now_us)
        self._evaluate(taken.brought, taken.hinted, now_us)
        self._save(now_us, everything=is_last or not self._rules)
        if not self._rules:
            self._followed.clear()
        elif is_time:
            self._remind(now_us)

    def _lead(self, now_us: int) -> bool:
        """Whether this server evaluates."""
        if self._leader.ask(now_us):
            log.info("alerts: this server %s evaluates", "now" if self._leader.leads else "no longer")
            self._forget()
        if not self._leader.leads:
            self._inbox.takes_records = False
            self._inbox.take()
        return self._leader.leads

    def _read_rules(self) -> None:
        versions = self._alerts.rule_versions()
        if versions == self._rule_versions:
            return
        self._rule_versions = versions
        rules = []
        for row in self._alerts.rules():
            try:
                rule = parse(row.body)
            except InvalidRule as error:
                # Made by another version: shown by the API with what is wrong with it.
                log.warning("the rule %s cannot be evaluated: %s", row.rule_id, error)
            else:
                # What fires goes on where only its name or its channels changed.
                rules.append((replace(row, version=row.judged_version), rule))
        self._rules = rules
        for followed in self._followed.values():
            followed.set_rules(rules)

    def _look(self, now_us: int) -> set[str]:
        """All runs that are not over: which are to be read, which were renamed, which stall."""
        ended = self._alerts.unfinished() if now_us >= self._unfinished_at_us else set()
        if now_us >= self._unfinished_at_us:
            self._unfinished_at_us = now_us + int(UNFINISHED_S * 1e6)
        pulses = self._alerts.pulses([*self._followed, *ended])
        if not self._rules:
            still_open = {row.run_id for row in self._alerts.episodes(states=OPEN, limit=MAX_OPEN)}
            pulses = {run_id: pulses[run_id] for run_id in pulses.keys() & still_open}
        behind = set()
        for run_id, pulse in pulses.items():
            followed = self._followed.get(run_id)
            if followed is None or followed.lags(pulse):
                behind.add(run_id)
            elif pulse.is_over and not followed.is_done:
                followed.is_done = followed.is_dirty = True
            elif pulse.is_over and not followed.is_dirty:
                del self._followed[run_id]
            elif not followed.is_named(pulse) and (run := self._store.get_run(run_id)) is not None:
                followed.set_rules(self._rules, run)
        for run_id in self._followed.keys() - pulses.keys():
            del self._followed[run_id]  # deleted
        gaps_us = {run_id: followed.gap_us for run_id, followed in self._followed.items()}
        for pulse in self._stalls.found(pulses.values(), gaps_us, now_us=now_us):
            if self._write_stall(pulse, now_us):
                behind.add(pulse.run_id)
        return {run_id for run_id in behind if self._resting.get(run_id, 0) <= now_us}

    def _write_stall(self, pulse: Pulse, now_us: int) -> bool:
        told = self._store.events(pulse.run_id, kinds=["stalled"], newest_first=True, limit=1)
        if told and told[0].time_us >= pulse.updated_us:
            return False  # before this server was restarted, or by another one
        silent_s = round((now_us - pulse.updated_us) / 1e6, 1)
        written = self._alerts.write_server_event(
            pulse.run_id, "stalled", "warning", {"silent_s": silent_s}, now_us=now_us
        )
        self._metrics.stalls += written
        return written

    def _evaluate(self, waiting: dict[str, dict[str, list[Brought]]], hinted: set[str], now_us: int) -> None:
        began_s, saved_s = time.thread_time(), time.monotonic()
        for run_id in sorted(waiting.keys() | hinted):
            if self._resting.get(run_id, 0) > now_us:
                continue
            try:
                self._evaluate_one(run_id, waiting.get(run_id, {}), is_hinted=run_id in hinted)
            except Unavailable:
                raise
            except Exception:
                self._metrics.errors += 1
                log.exception("alerts: the run %s could not be evaluated; it is tried again", run_id)
                self._followed.pop(run_id, None)
                self._find_broken(run_id, now_us)
            if time.monotonic() - saved_s > ROUND_S:
                # A long round keeps nobody waiting for what was found at its beginning.
                self._save(now_us, everything=False)
                saved_s = time.monotonic()
        self._metrics.evaluate_s += time.thread_time() - began_s

    def _evaluate_one(self, run_id: str, brought: dict[str, list[Brought]], *, is_hinted: bool) -> None:
        followed = self._followed.get(run_id) or self._follow(run_id)
        if followed is None:
            return
        followed.is_behind |= is_hinted
        if not followed.is_behind:
            followed.take(brought)
        if followed.is_behind:
            self._metrics.catch_ups += followed.catch_up()
            if followed.is_behind:
                self.changed([run_id])
        self._metrics.updates += 1

    def _find_broken(self, run_id: str, now_us: int) -> None:
        """Whose fault it is that a run cannot be evaluated: others go on without that rule, from what was saved."""
        run = self._store.get_run(run_id)
        held = self._broken.get(run_id, {})
        left = [(row, rule) for row, rule in self._rules if (row.rule_id, row.version) not in held]
        alone = functools.partial(Followed, self._store, run, baseline=self._baseline) if run is not None else None
        broken = {} if alone is None or not left else find_broken(alone, left)
        if broken:
            self._broken[run_id] = {**held, **broken}
            self.changed([run_id])
        else:
            self._resting[run_id] = now_us + int(REST_S * 1e6)

    def _follow(self, run_id: str) -> Followed | None:
        run = self._store.get_run(run_id)
        if run is None:
            return None
        followed = Followed(
            self._store,
            run,
            self._rules,
            baseline=self._baseline,
            broken=self._broken.get(run_id, {}),
            url=f"{self._base_url}/runs/{run_id}" if self._base_url else "",
        )
        self._followed[run_id] = followed
        return followed

    # ---- saving --------------------------------------------------------------------------------

    def _save(self, now_us: int, *, everything: bool) -> None:
        """Runs with an episode that began or ended at once, the others now and then; all in one transaction."""

        def is_due(followed: Followed) -> bool:
            after_s = CHECKPOINT_S if followed.known or followed.is_done else QUIET_CHECKPOINT_S
            return everything or now_us - followed.saved_us >= int(after_s * 1e6)

        due = [one for one in self._followed.values() if one.is_urgent or (one.is_dirty and is_due(one))]
        if due:
            self._save_all(due, now_us)

    def _save_all(self, due: Sequence[Followed], now_us: int) -> None:
        began_s = time.monotonic()
        settings = self._surroundings(now_us) if any(followed.is_urgent for followed in due) else None
        evaluations: list[Evaluation] = []
        for followed in due:
            saved = followed.to_save()
            rows, notices = self._routed(followed, saved, settings, now_us)
            evaluations.append(
                Evaluation(
                    run_id=followed.run.run_id,
                    version=saved.version,
                    state=saved.state,
                    is_done=followed.is_done,
                    episodes=rows,
                    notices=notices,
                )
            )
        refused = self._alerts.save_evaluations(evaluations, now_us=now_us)
        self._metrics.saves += 1
        self._metrics.save_s += time.monotonic() - began_s
        told: list[EpisodeRow] = []
        num_notices = 0
        for followed, evaluation in zip(due, evaluations, strict=True):
            if evaluation.run_id in refused:
                # Deleted, or evaluated by another server since: what was found here does not count.
                del self._followed[evaluation.run_id]
                self.changed([evaluation.run_id])
                continue
            followed.saved(evaluation.episodes, now_us=now_us)
            told += evaluation.episodes
            num_notices += len(evaluation.notices)
        self._tell(told, num_notices)

    def _tell(self, rows: Sequence[EpisodeRow], num_notices: int) -> None:
        self._metrics.notices += num_notices
        if num_notices:
            self._on_notices()
        if rows:
            self._on_episodes(rows)

    def _surroundings(self, now_us: int) -> Around:
        """What decides about sending; runs and what fires on them are filled in later."""
        return Around(
            run=None,
            rules={rule.id: rule for _, rule in self._rules},
            firing=(),
            channels=self._alerts.channels(),
            silences=self._alerts.silences(now_us),
            base_url=self._base_url,
            now_us=now_us,
        )

    def _routed(
        self, followed: Followed, saved: Saved, settings: Around | None, now_us: int
    ) -> tuple[list[EpisodeRow], list[NoticeRow]]:
        """The episodes as they are to be kept, and the notifications that follow."""
        rows: list[EpisodeRow] = []
        notices: list[NoticeRow] = []
        around = None if settings is None else replace(settings, run=followed.run, firing=followed.firing)
        for before, row in saved.changed:
            now = replace(row, updated_us=now_us, **({} if before is None else _kept(before)))
            if around is not None:
                if routing.has_fired(now) and not routing.has_fired(before):
                    now = replace(now, muted_by=routing.muted_by(now, around))
                    begun = [] if now.muted_by else routing.fired(now, around)
                    notices += begun
                    self._metrics.fired += 1
                else:
                    begun = []
                if now.state == "resolved" and routing.has_fired(now):
                    told = begun or self._alerts.notices(now.episode_id)
                    notices += routing.resolved(now, told, around)
                    self._metrics.resolved += 1
            rows.append(now)
        return rows, notices

    def _remind(self, now_us: int) -> None:
        """Repetitions, and what was kept from being sent by something that is over while it still goes on."""
        firing = self._alerts.episodes(states=routing.FIRING, limit=MAX_FIRING)
        firing = [row for row in firing if self._may_be_told(row)]
        if not firing:
            return
        settings = self._surroundings(now_us)
        told: dict[str, list[NoticeRow]] = {}
        for notice in self._alerts.notices(*(row.episode_id for row in firing)):
            told.setdefault(notice.episode_id, []).append(notice)
        evaluations = []
        for row in firing:
            followed = self._followed.get(row.run_id)
            if followed is None:
                continue
            around = replace(settings, run=followed.run, firing=followed.firing)
            own = told.get(row.episode_id, [])
            notices = routing.repeated(row, own, around) if own else []
            rows = []
            if row.muted_by and not (muted_by := routing.muted_by(row, around)):
                rows = [replace(row, muted_by=muted_by)]
                notices = routing.fired(rows[0], around)
                followed.unmute(row.episode_id)
            if notices or rows:
                evaluations.append(Evaluation(run_id=row.run_id, version=0, state=None, episodes=rows, notices=notices))
        for evaluation in evaluations:  # one by one: a run may be among them several times
            if not self._alerts.save_evaluations([evaluation], now_us=now_us):
                self._tell(evaluation.episodes, len(evaluation.notices))

    def _may_be_told(self, row: EpisodeRow) -> bool:
        if row.acknowledged_us is not None:
            return False  # somebody has seen it: a silence that ends is no news
        if row.muted_by:
            return row.muted_by != routing.TOO_LATE
        rule = next((rule for _, rule in self._rules if rule.id == row.rule_id), None)
        return rule is not None and rule.repeat_s is not None


def pause_s(cost_s: float) -> float:
    """How long nothing is evaluated after a round that took so long."""
    return max(0.0, ROUND_S - cost_s, min(cost_s * (1 / BUSY_SHARE - 1), MAX_ROUND_S - cost_s))


def _kept(before: EpisodeRow) -> dict[str, Any]:
    """What evaluation knows nothing of."""
    return {name: getattr(before, name) for name in ("muted_by", "acknowledged_us", "acknowledged_by")}
