"""The write path: batches of many streams decoded, then applied in one transaction.

Owns the order of a group commit and what is remembered between two. Must not answer to sockets. Invariants: a batch is
applied exactly when its cursor moved from its first seq to its end in the same transaction; what is acknowledged was
read back after COMMIT; a batch that cannot be taken is refused alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from halfscope.wire.messages import Batch, Gone, Refuse

from halfscope_server.store import bucket_slices, cursors, events, layers, managing, plain, runs, schema
from halfscope_server.store.checks import BadBatch
from halfscope_server.store.cursors import Advance, Key, StreamState
from halfscope_server.store.engine import Database
from halfscope_server.store.prepared import Prepared
from halfscope_server.store.rank_tables import RankTables
from halfscope_server.store.records import Decoded, decode_batch
from halfscope_server.store.tails import Tails
from halfscope_server.store.types import Applied, CommitResult, noted
from halfscope_server.store.updates import Brought

MAX_REMEMBERED = 4096
"""Streams whose state is kept between commits; the others are read again."""
MAX_TRIES = 4
"""Of a group commit that a deadlock or a broken connection undid."""

_SEGMENT = Prepared(sa.insert(schema.segment))


@dataclass(slots=True, kw_only=True)
class _Plan:
    """What one stream takes part with in a group."""

    state: StreamState
    decoded: list[Decoded] = field(default_factory=list)
    next: int
    digest: bytes
    sids: dict[int, int]
    lids: dict[int, int]

    def take(self, batch: Batch) -> None:
        """Decode the batch that comes next; raises BadBatch."""
        decoded = decode_batch(batch, digest=self.digest, sids=self.sids, lids=self.lids)
        self.decoded.append(decoded)
        self.next, self.digest = decoded.end_seq, batch.digest
        if decoded.declared:
            self.sids = self.sids | {sid: series_id for sid, (series_id, _) in decoded.declared.items()}
        if decoded.layers:
            self.lids = self.lids | {lid: layer_id for lid, (layer_id, _) in decoded.layers.items()}

    @property
    def ended(self) -> tuple[str, int | None]:
        """How the stream stands after the group: its End record decides; new records take a lost contact back."""
        for decoded in reversed(self.decoded):
            for _, end in reversed(decoded.ends):
                return plain.text(end.outcome, 32) or "finished", end.time_us
        if self.state.ended == "lost_contact":
            return "", None
        return self.state.ended, self.state.ended_us

    @property
    def started(self) -> bool:
        return self.state.started or any(decoded.starts for decoded in self.decoded)


@dataclass(slots=True, kw_only=True)
class _Outcome:
    refused: list[Refuse] = field(default_factory=list)
    gone: list[Gone] = field(default_factory=list)
    applied: list[Applied] = field(default_factory=list)


class Committer:
    """Applies groups of batches. One thread at a time may use it."""

    def __init__(self, database: Database, tails: Tails, rank_tables: RankTables) -> None:
        self._database, self._tails, self._rank_tables = database, tails, rank_tables
        self._states: OrderedDict[Key, StreamState] = OrderedDict()

    def commit(self, batches: Sequence[Batch], *, now_us: int) -> CommitResult:
        """Apply what can be applied; see `Store.commit`."""
        outcome = _Outcome()
        by_key: dict[Key, list[Batch]] = {}
        for batch in batches:
            by_key.setdefault((batch.run_id, batch.stream), []).append(batch)
        keys = sorted(by_key)
        try:
            plans = self._plan(keys, by_key, outcome)
            if plans:
                self._apply_or_single_out(plans, outcome, now_us)
            return self._answer(batches, keys, outcome)
        except sa.exc.SQLAlchemyError:
            self.forget()  # what was committed is unknown
            raise

    def remember(self, state: StreamState) -> None:
        """Keep a state that was just read from the database."""
        self._states[state.key] = state
        self._states.move_to_end(state.key)
        while len(self._states) > MAX_REMEMBERED:
            self._states.popitem(last=False)

    def forget(self, key: Key | None = None) -> None:
        """Read this stream, or all, from the database next time."""
        if key is None:
            self._states.clear()
        else:
            self._states.pop(key, None)

    def _plan(self, keys: Sequence[Key], by_key: Mapping[Key, Sequence[Batch]], outcome: _Outcome) -> list[_Plan]:
        plans = []
        for key in keys:
            own = by_key[key]
            state = self._state(key, epoch=max(batch.epoch for batch in own))
            if state is None:
                continue  # the answer says whether it was deleted or never there
            plan = _Plan(state=state, next=state.next, digest=state.digest, sids=state.sids, lids=state.lids)
            for batch in own:
                if batch.epoch != state.epoch:
                    outcome.refused.append(_fenced(batch, state.epoch))
                elif batch.first == plan.next:
                    try:
                        plan.take(batch)
                    except BadBatch as error:
                        outcome.refused.append(_bad(batch.run_id, batch.stream, str(error)))
                        break
                # Any other first seq is a resend, an overlap or a gap: the cursor in the answer tells where to go on.
            if plan.decoded:
                plans.append(plan)
        return plans

    def _state(self, key: Key, *, epoch: int) -> StreamState | None:
        state = self._states.get(key)
        if state is None or state.epoch < epoch:
            with self._database.writing() as connection:
                state = cursors.load(connection, key)
            if state is not None:
                self.remember(state)
        return state

    def _refuse_unknown(self, connection: sa.Connection, key: Key, outcome: _Outcome) -> None:
        if managing.deleted(connection, key[0]) is not None:
            outcome.gone.append(Gone(*key))
        else:
            outcome.refused.append(
                Refuse("fenced", "the server does not know this stream; say hello for it first", *key)
            )

    def _apply_or_single_out(self, plans: list[_Plan], outcome: _Outcome, now_us: int) -> None:
        """Apply a group; where the database refuses a value in it, apply stream by stream and refuse the one."""
        try:
            outcome.applied += self._apply(plans, now_us)
        except (sa.exc.DataError, sa.exc.IntegrityError) as error:
            for plan in plans:
                self.forget(plan.state.key)
            if len(plans) == 1:
                key = plans[0].state.key
                outcome.refused.append(_bad(*key, f"the database does not take it: {type(error.orig).__name__}"))
                return
            for plan in plans:
                self._apply_or_single_out([plan], outcome, now_us)

    def _apply(self, plans: list[_Plan], now_us: int) -> list[Applied]:
        for tries_left in reversed(range(MAX_TRIES)):
            moved: list[_Plan] = []
            try:
                self._write(plans, moved, now_us)
            except sa.exc.OperationalError:
                # A deadlock was undone; a broken COMMIT may have happened or not. The cursors know: read them again.
                plans = self._unapplied(plans, moved)
                if not plans:
                    return self._remembered(moved, now_us)
                if not tries_left:
                    for plan in plans:
                        self.forget(plan.state.key)
                    raise
            else:
                return self._remembered(moved, now_us)
        raise AssertionError("the last try returns or raises")

    def _unapplied(self, plans: list[_Plan], moved: list[_Plan]) -> list[_Plan]:
        """Those whose batches did not reach the database; the digest tells them from another connection's."""
        with self._database.writing() as connection:
            found = cursors.read(connection, [plan.state.key for plan in plans])
        done = {
            plan.state.key
            for plan in moved
            if (at := found.get(plan.state.key)) is not None and (at[0], at[2]) == (plan.next, plan.digest)
        }
        # One transaction: either all that moved are there or none is.
        return [] if done else plans

    def _write(self, plans: list[_Plan], moved: list[_Plan], now_us: int) -> None:
        """The transaction: mostly all cursors can be moved, which takes one statement; else each by itself."""
        moves = [_advance(plan) for plan in plans]
        with self._database.writing() as connection:
            moved[:] = plans
            if cursors.advance_all(connection, moves, now_us=now_us):
                _write_rows(connection, moved, now_us)
                return
            moved.clear()
            connection.rollback()
        with self._database.writing() as connection:
            for plan, move in zip(plans, moves, strict=True):
                if cursors.advance(connection, move, now_us=now_us):
                    moved.append(plan)
                else:
                    self.forget(plan.state.key)
            _write_rows(connection, moved, now_us)

    def _remembered(self, moved: list[_Plan], now_us: int) -> list[Applied]:
        """Bring memory up to what was committed, and say what that was."""
        applied = []
        for plan in moved:
            state = plan.state
            ended, ended_us = plan.ended
            started = plan.started
            regained = state.ended == "lost_contact" and ended == ""
            brought = Brought(
                state=state,
                decoded=plan.decoded,
                sids=plan.sids,
                lids=plan.lids,
                next=plan.next,
                ended=ended,
                ended_us=ended_us,
                now_us=now_us,
            )
            self._rank_tables.bring(state, plan.decoded, plan.sids)
            state.next, state.digest, state.sids, state.lids = plan.next, plan.digest, plan.sids, plan.lids
            state.started, state.ended, state.ended_us = started, ended, ended_us
            self.remember(state)
            self._tails.bring(state.key, plan.decoded, plan.sids)
            steps = [d for d in plan.decoded if d.first_step is not None and d.last_step is not None]
            applied.append(
                Applied(
                    run_id=state.run_id,
                    stream=state.stream,
                    next=plan.next,
                    first_step=min((d.first_step for d in steps if d.first_step is not None), default=None),
                    last_step=max((d.last_step for d in steps if d.last_step is not None), default=None),
                    num_points=sum(d.num_points for d in plan.decoded),
                    num_events=sum(len(d.events) + len(d.lost) + len(d.ends) for d in plan.decoded),
                    num_sketches=sum(d.num_sketches for d in plan.decoded),
                    series_ids=frozenset().union(*(d.series_ids for d in plan.decoded)),
                    brought=brought,
                )
            )
            if regained:
                applied.append(noted(state.run_id))
        return applied

    def _answer(self, batches: Sequence[Batch], keys: Sequence[Key], outcome: _Outcome) -> CommitResult:
        """Read the cursors back and say what became of every stream of the group."""
        with self._database.writing() as connection:
            found = cursors.read(connection, keys)
            answered = {(said.run_id, said.stream) for said in outcome.refused}
            for key in keys:
                state = self._states.get(key)
                if state is not None and found.get(key, (-1, -1))[:2] != (state.next, state.epoch):
                    self.forget(key)  # another replica moved it, or it was deleted
                if key not in found and key not in answered:
                    self._refuse_unknown(connection, key, outcome)
        for batch in batches:
            key = (batch.run_id, batch.stream)
            if key in found and key not in answered and found[key][1] != batch.epoch:
                answered.add(key)
                outcome.refused.append(_fenced(batch, found[key][1]))
        return CommitResult(
            next={key: at[0] for key, at in found.items()},
            epochs={key: at[1] for key, at in found.items()},
            applied=outcome.applied,
            refused=outcome.refused,
            gone=outcome.gone,
        )


def _advance(plan: _Plan) -> Advance:
    ended, ended_us = plan.ended
    return Advance(
        state=plan.state,
        next=plan.next,
        digest=plan.digest,
        started=plan.started,
        ended=ended,
        ended_us=ended_us,
        num_segments=sum(1 for decoded in plan.decoded if decoded.is_measured),
    )


def _write_rows(connection: sa.Connection, moved: Sequence[_Plan], now_us: int) -> None:
    """Everything but the cursors. All take the tables in one order: stream, run, series, layer, bucket_slice, segment,
    event."""
    by_run: dict[str, list[runs.Brought]] = {}
    for plan in moved:
        brought = runs.Brought(state=plan.state, decoded=plan.decoded, ended=plan.ended[0])
        by_run.setdefault(plan.state.run_id, []).append(brought)
    event_rows = runs.apply(connection, by_run, now_us=now_us)
    _series_rows(connection, moved)
    layers.insert(connection, [(plan.state, decoded) for plan in moved for decoded in plan.decoded if decoded.layers])
    bucket_slices.insert(
        connection, [(plan.state, *found) for plan in moved for d in plan.decoded for found in d.slices]
    )
    segments = [
        _segment_row(plan.state, decoded, now_us) for plan in moved for decoded in plan.decoded if decoded.is_measured
    ]
    if segments:
        _SEGMENT.run(connection, segments)
    for plan in moved:
        for decoded in plan.decoded:
            event_rows += _event_rows(plan.state, decoded, now_us)
    events.insert(connection, event_rows)


def _segment_row(state: StreamState, decoded: Decoded, now_us: int) -> dict[str, object]:
    raw_bytes, body = decoded.measured()
    return {
        "run_id": state.run_id,
        "attempt": state.attempt,
        "stream": state.stream,
        "first_seq": decoded.batch.first,
        "last_seq": decoded.end_seq - 1,
        "received_us": now_us,
        "raw_bytes": raw_bytes,
        "body": body,
    }


def _series_rows(connection: sa.Connection, moved: Sequence[_Plan]) -> None:
    series: dict[tuple[str, int], dict[str, object]] = {}
    sids: list[dict[str, object]] = []
    for plan in moved:
        for decoded in plan.decoded:
            for sid, (series_id, declared) in decoded.declared.items():
                series[plan.state.run_id, series_id] = {
                    "run_id": plan.state.run_id,
                    "series_id": series_id,
                    "name": declared.name,
                    "unit": declared.unit,
                    "kind": declared.kind,
                    "reduction": declared.reduction,
                    "labels": plain.pack(declared.labels),
                }
                sids.append(
                    {"run_id": plan.state.run_id, "stream": plan.state.stream, "sid": sid, "series_id": series_id}
                )
    cursors.insert_missing(connection, schema.series, [series[key] for key in sorted(series)])
    cursors.insert_missing(connection, schema.stream_series, sids)


def _event_rows(state: StreamState, decoded: Decoded, now_us: int) -> list[dict[str, Any]]:
    step = decoded.last_step or 0
    return [
        *(events.of_record(state, seq, record) for seq, record in decoded.events),
        *(events.of_lost(state, seq, record, step=step, now_us=now_us) for seq, record in decoded.lost),
        *(events.of_end(state, seq, record) for seq, record in decoded.ends),
    ]


def _fenced(batch: Batch, epoch: int) -> Refuse:
    return Refuse(
        "fenced",
        f"a newer connection writes this stream (epoch {epoch}, this batch has {batch.epoch}); "
        "say hello again to take it back",
        batch.run_id,
        batch.stream,
    )


def _bad(run_id: str, stream: str, reason: str) -> Refuse:
    return Refuse("bad_batch", plain.text(reason, 1000), run_id, stream)
