"""One run under evaluation: how far it is in each stream, its evaluator, and what has changed since it was last saved.

Owns the envelope that is kept of a run's evaluation. Must not know threads, queues or other runs. Invariant: what is
saved (cursors, the evaluator's state, episodes) is always of one moment, so whoever goes on from it, after a restart or
on another server, finds what would have been found here.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import msgspec
import numpy as np

from halfscope_server.alerts.evaluator import RunEvaluator
from halfscope_server.alerts.packing import unpack
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.scope import covers
from halfscope_server.errors import Unavailable
from halfscope_server.store.pulses import Pulse
from halfscope_server.store.store import Store
from halfscope_server.store.types import EpisodeRow, RuleRow, RunRow, SeriesRow
from halfscope_server.store.update_types import StreamCursor, Update
from halfscope_server.store.updates import Brought, of_commits, sketched

log = logging.getLogger(__name__)

Rules = Sequence[tuple[RuleRow, Rule]]
Baseline = Callable[[Rule], float | None]
OPEN = ("pending", "firing", "no_data", "error")
MAX_OPEN = 10_000
SURE_GAP_US = 60_000_000
"""Pauses up to here hide no stall, so nobody asks which clock they are by."""
READS_AT_ONCE = 4
"""Of a run that is far behind, before others have their turn."""


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a run's evaluation."""

    rules: list[tuple[str, int]]
    """(id, version) of those that were evaluated."""
    cursors: dict[str, tuple[int, int, dict[int, int], int]]
    change_steps: dict[str, int] = {}
    """Newest sketched changes of weights that were taken in."""
    engine: bytes
    gap_us: int
    """Longest time between two steps so far."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Envelope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """Something to be saved of a run, and what it was before."""

    state: bytes
    version: int
    changed: Sequence[tuple[EpisodeRow | None, EpisodeRow]]
    """(as it was last saved, as it is now)"""


class Followed:
    """See the module."""

    def __init__(
        self,
        store: Store,
        run: RunRow,
        rules: Rules,
        *,
        baseline: Baseline,
        broken: Mapping[tuple[str, int], str] = MappingProxyType({}),
        url: str = "",
    ) -> None:
        """
        Args:
            store: read from only.
            run: as it is now.
            rules: all that there are; the evaluator picks those whose scope holds the run.
            baseline: what `ratio` compares with.
            broken: (id, version) of rules whose evaluation on this run fails, and how.
            url: address of the run's page; empty: unknown.
        """
        self._store, self._alerts = store, store.alerts
        self.run = run
        found = self._alerts.episodes(run_id=run.run_id, states=OPEN, limit=MAX_OPEN)
        self.known = {row.episode_id: row for row in found}
        """Open episodes as they were last saved."""
        held = self._alerts.alert_state(run.run_id)
        envelope, self.version = (None, 0) if held is None else (_opened(held[0]), held[1])
        self._rules, self._broken = rules, broken
        self._looking = self._versions()
        if envelope is not None and set(self._looking).isdisjoint(envelope.rules) and not self.known:
            envelope = None  # of other rules, long ago: these begin now
        self._cursors = (
            self._begin()
            if envelope is None
            else {
                stream: StreamCursor(
                    next=at[0],
                    last_step=at[1],
                    steps=at[2],
                    frame_step=at[3],
                    change_step=envelope.change_steps.get(stream, at[1]),
                )
                for stream, at in envelope.cursors.items()
            }
        )
        self.gap_us = 0 if envelope is None else envelope.gap_us
        engine = None if envelope is None else envelope.engine
        is_lost = engine is None or unpack(engine) is None
        self._evaluator = RunEvaluator(run, self._whole(), state=engine, baseline=baseline, url=url)
        self._wanted = self._evaluator.inputs()
        self._series: Mapping[int, SeriesRow] = {}
        self._layers: Mapping[int, str] = {}
        """Names by id."""
        self._changed: dict[str, EpisodeRow] = {}
        self.is_behind = True
        """There may be something in the store that was not handed over."""
        self.is_urgent = False
        """An episode began, fired or ended since the last save."""
        self.is_dirty = False
        """Anything is different from what was saved."""
        self.is_done = False
        """The run is over, and all of it was evaluated."""
        self.saved_us = 0
        self._seen: dict[str, int] = {}
        self._last_us: dict[str, int] = {}
        """Time of each stream's newest row."""
        if is_lost:
            self._close_forgotten()
        self._note_errors()

    def _versions(self) -> list[tuple[str, int]]:
        """Of the rules that look at this run."""
        return [(row.rule_id, row.version) for row, rule in self._rules if covers(rule, self.run)]

    def _begin(self) -> dict[str, StreamCursor]:
        """Where a run begins that was never evaluated: at its beginning; or now, where no rule is as old as the run."""
        looking = dict(self._looking)
        first_us = min((row.created_us for row, _ in self._rules if row.rule_id in looking), default=0)
        pulse = self._alerts.pulses([self.run.run_id]).get(self.run.run_id)
        if pulse is None or self.run.created_us >= first_us:
            return {}
        last = -1 if pulse.last_step is None else pulse.last_step
        return {
            stream: StreamCursor(next=at, last_step=last, frame_step=last, change_step=last)
            for stream, at in pulse.next.items()
        }

    def _close_forgotten(self) -> None:
        """Open episodes whose evaluation begins anew are over; what they were about is found again."""
        for row in self.known.values():
            if row.state != "error":
                self._note([_over(row, "evaluation began anew")])

    def _whole(self) -> Rules:
        """The rules that can be evaluated."""
        return [(row, rule) for row, rule in self._rules if (row.rule_id, row.version) not in self._broken]

    def _note_errors(self) -> None:
        """An episode of its own for each rule that cannot be evaluated here; it goes when the rule can."""
        reasons = {
            **self._evaluator.errors,
            **{row.rule_id: why for row, _ in self._rules if (why := self._broken.get((row.rule_id, row.version)))},
        }
        held = {**self.known, **self._changed}
        errors = {
            error.episode_id: error
            for row, rule in self._rules
            if (why := reasons.get(row.rule_id)) and (error := _error(self.run, row, rule, why))
        }
        self._note([error for key, error in errors.items() if key not in held])
        self._note([_over(row, "it can") for key, row in held.items() if row.state == "error" and key not in errors])

    # ---- what is new ---------------------------------------------------------------------------

    def next_of(self, stream: str) -> int:
        """First seq of a stream that was not evaluated."""
        return self._cursors.get(stream, StreamCursor()).next

    def lags(self, pulse: Pulse) -> bool:
        """Whether the store held more at the last look than is evaluated now. What it holds more at this one is mostly
        on its way here."""
        seen, self._seen = self._seen, dict(pulse.next)
        return any(next_seq > self.next_of(stream) for stream, next_seq in seen.items())

    def is_named(self, pulse: Pulse) -> bool:
        """Whether the run is still called and tagged as rules know it."""
        run = self.run
        return (run.project, run.name, list(run.tags)) == (pulse.project, pulse.name, list(pulse.tags))

    def take(self, brought: Mapping[str, Sequence[Brought]]) -> None:
        """Evaluate what group commits brought, by stream; where something is missing in between, nothing is taken and
        the store must be read."""
        updates: list[tuple[Update, StreamCursor]] = []
        for stream, parts in brought.items():
            at = self.next_of(stream)
            new = [part for part in parts if part.next > at]
            if not new:
                continue
            for part in new:
                if part.first != at:
                    self.is_behind = True
                    break
                at = part.next
            if self.is_behind:
                return
            updates.append(self._update(stream, new))
        self._feed(updates)

    def _update(self, stream: str, parts: Sequence[Brought]) -> tuple[Update, StreamCursor]:
        if not all(self._series.keys() >= one.series_ids for part in parts for one in part.decoded):
            self._series = self._alerts.series(self.run.run_id)
        if any(one.facts or one.starts for part in parts for one in part.decoded):
            self._read_run()
        cursor = self._cursors.get(stream, StreamCursor())
        step = of_commits(parts, cursor, self._wanted, self._series)
        is_wanted = self._wanted.frames or self._wanted.changes
        if not is_wanted or not any(one.num_sketches for part in parts for one in part.decoded):
            return step
        if any(layer_id not in self._layers for layer_id in parts[-1].lids.values()):
            self._layers = self._alerts.layer_names(self.run.run_id)
        return sketched(parts, step, self._layers)

    def catch_up(self) -> int:
        """Read and evaluate what is behind the cursors; `is_behind` stays where there is more. Gives the number of
        reads."""
        self._read_run()
        for num_reads in range(1, READS_AT_ONCE + 1):
            found = self._alerts.updates_since(self.run.run_id, self._cursors, self._wanted)
            self._feed(list(found.steps))
            if not found.is_behind:
                self.is_behind = False
                return num_reads
        return READS_AT_ONCE

    def _read_run(self) -> None:
        """What is known of a run as a whole comes little by little."""
        self.run = self._store.get_run(self.run.run_id) or self.run

    def _feed(self, steps: Sequence[tuple[Update, StreamCursor]]) -> None:
        if not steps:
            return
        self._note(self._evaluator.feed([update for update, _ in steps], self.run))
        if self._evaluator.errors:
            self._note_errors()
        for update, cursor in steps:
            cursor = self._passed_over(cursor)
            is_new = self._cursors.get(update.stream) != cursor
            self.is_dirty |= is_new
            self.is_done &= not is_new
            self._cursors[update.stream] = cursor
            if update.columns:
                times_us = max(update.columns, key=lambda column: column.step.size).time_us
                since_us = self._last_us.get(update.stream, int(times_us[0]))
                gap_us = int(np.diff(times_us, prepend=since_us).max())
                if gap_us > max(self.gap_us, SURE_GAP_US):
                    gap_us = min(gap_us, self._longest_step_us(update, gap_us))
                self.gap_us = max(self.gap_us, gap_us)
                self._last_us[update.stream] = int(times_us[-1])

    def _longest_step_us(self, update: Update, else_us: int) -> int:
        """The longest step of an update by a clock that nobody sets: one on the wall that was set is no pause."""
        steps = max(update.columns, key=lambda column: column.step.size).step
        for row in self._store.series(self.run.run_id):
            if row.name == "time.step_s":
                found = self._store.points(
                    self.run.run_id,
                    row.series_id,
                    first_step=int(steps[0]),
                    last_step=int(steps[-1]),
                    rank=update.rank,
                    attempt=update.attempt,
                )
                return int(found.value.max() * 1e6) if found.value.size else else_us
        return else_us

    def _passed_over(self, cursor: StreamCursor) -> StreamCursor:
        """Sketches that nobody looks at are behind it: a rule about them that comes begins with the next."""
        frame_step = cursor.frame_step if self._wanted.frames else cursor.last_step
        change_step = cursor.change_step if self._wanted.changes else cursor.last_step
        if (frame_step, change_step) == (cursor.frame_step, cursor.change_step):
            return cursor
        return replace(cursor, frame_step=frame_step, change_step=change_step)

    # ---- rules ---------------------------------------------------------------------------------

    def set_rules(self, rules: Rules, run: RunRow | None = None) -> None:
        """Go on with other rules, or a run that was renamed: what is new or changed begins with the next data."""
        self._rules, self.run = rules, run or self.run
        self._looking = self._versions()
        self._note(self._evaluator.set_rules(self._whole(), self.run))
        self._note_errors()
        self._wanted = self._evaluator.inputs()
        self.is_dirty = True

    # ---- saving --------------------------------------------------------------------------------

    def _note(self, rows: Sequence[EpisodeRow]) -> None:
        for row in rows:
            if row.resolution == "rule changed" and self._is_off(row.rule_id):
                row = replace(row, resolution="rule switched off")
            before = self._changed.get(row.episode_id) or self.known.get(row.episode_id)
            self._changed[row.episode_id] = row
            self.is_dirty = True
            self.is_urgent |= before is None or (before.state, before.fired_us) != (row.state, row.fired_us)

    def _is_off(self, rule_id: str) -> bool:
        return any(rule.id == rule_id and not rule.enabled for _, rule in self._rules)

    def to_save(self) -> Saved:
        """Everything there is to save now."""
        self._note(self._evaluator.progress())
        cursors = {
            stream: (at.next, at.last_step, dict(at.steps), at.frame_step) for stream, at in self._cursors.items()
        }
        envelope = _Envelope(
            rules=self._looking,
            cursors=cursors,
            change_steps={stream: at.change_step for stream, at in self._cursors.items() if self._wanted.changes},
            engine=self._evaluator.state(),
            gap_us=self.gap_us,
        )
        changed = [(self.known.get(key), row) for key, row in self._changed.items()]
        return Saved(state=_encoder.encode(envelope), version=self.version, changed=changed)

    def saved(self, rows: Sequence[EpisodeRow], *, now_us: int) -> None:
        """What `to_save` gave was saved, with the episodes as they are here."""
        self.version += 1
        for row in rows:
            if row.state == "resolved":
                self.known.pop(row.episode_id, None)
            else:
                self.known[row.episode_id] = row
        self._changed.clear()
        self.is_dirty = self.is_urgent = False
        self.saved_us = now_us

    def unmute(self, episode_id: str) -> None:
        """What kept an episode from being sent is over, and that was saved."""
        if episode_id in self.known:
            self.known[episode_id] = replace(self.known[episode_id], muted_by="")

    @property
    def firing(self) -> set[str]:
        """Ids of the rules that fire on this run now."""
        rows: dict[str, EpisodeRow] = {**self.known, **self._changed}
        return {row.rule_id for row in rows.values() if row.state in ("firing", "no_data")}


def find_broken(followed: Callable[[Rules], Followed], rules: Rules) -> dict[tuple[str, int], str]:
    """Which rules' evaluation fails, and how: found by halving, since it is mostly one.

    Args:
        followed: makes an evaluation of some rules alone, from what was saved.
        rules: those to try.
    """
    if (why := _failure(followed, rules)) is None:
        return {}
    if len(rules) == 1:
        return {(row.rule_id, row.version): why for row, _ in rules}
    middle = len(rules) // 2
    return find_broken(followed, rules[:middle]) | find_broken(followed, rules[middle:])


def _failure(followed: Callable[[Rules], Followed], rules: Rules) -> str | None:
    try:
        alone = followed(rules)
        while alone.is_behind:
            alone.catch_up()
    except Unavailable:
        raise
    except Exception as error:  # noqa: BLE001  (whatever a metric raises is the rule's; it is shown)
        return f"{type(error).__name__}: {error}"
    return None


def _over(row: EpisodeRow, resolution: str) -> EpisodeRow:
    return replace(
        row, state="resolved", resolved_step=row.last_step, resolved_us=row.last_us, resolution=resolution
    )  # fmt: skip


def _error(run: RunRow, row: RuleRow, rule: Rule, why: str) -> EpisodeRow:
    """That a rule cannot be evaluated on a run."""
    step, time_us = run.last_step or 0, run.updated_us
    return EpisodeRow(
        episode_id=hashlib.blake2b(
            f"error {row.rule_id} {row.version} {run.run_id}".encode(), digest_size=16
        ).hexdigest(),
        rule_id=row.rule_id,
        rule_version=row.version,
        run_id=run.run_id,
        rule_name=rule.name,
        metric=rule.metric,
        severity=rule.severity,
        layer="",
        rank=None,
        labels={},
        attempt=max(0, run.num_attempts - 1),
        state="error",
        first_step=step,
        first_us=time_us,
        fired_step=None,
        fired_us=None,
        last_step=step,
        last_us=time_us,
        resolved_step=None,
        resolved_us=None,
        resolution="",
        value=math.nan,
        worst=math.nan,
        threshold=rule.threshold,
        text=f"the rule {rule.name} cannot be evaluated: {why}",
        evidence={},
        updated_us=0,
    )


def _opened(data: bytes) -> _Envelope | None:
    """None: of another version."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError:
        log.warning("the state of an evaluation is of another version; it begins anew")
        return None
