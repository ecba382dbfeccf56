"""What alerts keep: rules, channels, silences, episodes, notifications, and who of several servers evaluates.

The part of the store that the alerts package and its routes speak with, as `Store.alerts`. Must not know what a rule
means. Invariant: a rule's versions are never counted anew, not even after it was deleted, because episodes are known
by them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from halfscope_server.errors import Conflict
from halfscope_server.store import contact, cursors, episodes, layers, plain, pulses, schema, updates
from halfscope_server.store.episodes import ChannelStatus, EpisodeCounts, Evaluation, RuleStatus
from halfscope_server.store.pulses import Pulse
from halfscope_server.store.reading import series_of
from halfscope_server.store.types import (
    SERVER_STREAM,
    ChannelRow,
    EpisodeRow,
    FrameMoments,
    NoticeRow,
    RuleRow,
    SeriesRow,
    SilenceRow,
)
from halfscope_server.store.update_types import StreamCursor, Wanted
from halfscope_server.store.updates import Reading, Step

rule = schema.rule
channel = schema.channel
silence = schema.silence
lease = schema.lease

JUDGED = ""
"""Under this name a rule's body holds its `judged_version`, where that is not its version."""

Connecting = Callable[[], AbstractContextManager[sa.Connection]]


class AlertStore:
    """Methods for any thread. They raise `Unavailable` like those of the store.

    Args:
        writing: opens a transaction that writes.
        reading: opens a snapshot.
        tell: tells other servers that something of these runs changed.
        frame_moments: `Store.frame_moments`.
    """

    def __init__(
        self,
        writing: Connecting,
        reading: Connecting,
        tell: Callable[..., None],
        frame_moments: Callable[..., FrameMoments],
    ) -> None:
        self._writing, self._reading, self._tell = writing, reading, tell
        self._frame_moments = frame_moments

    # ---- rules ---------------------------------------------------------------------------------

    def rules(self) -> list[RuleRow]:
        """All rules, by id."""
        with self._reading() as connection:
            rows = connection.execute(sa.select(rule).where(rule.c.body.is_not(None)).order_by(rule.c.rule_id))
            return [_rule(row) for row in rows]

    def rule_versions(self) -> list[tuple[str, int]]:
        """(id, version) of all rules: whether any was changed."""
        with self._reading() as connection:
            rows = connection.execute(
                sa.select(rule.c.rule_id, rule.c.version).where(rule.c.body.is_not(None)).order_by(rule.c.rule_id)
            )
            return [(row[0], row[1]) for row in rows]

    def rule(self, rule_id: str) -> RuleRow | None:
        """One rule, or None: there is none, or it was deleted."""
        with self._reading() as connection:
            row = connection.execute(sa.select(rule).where(rule.c.rule_id == rule_id)).one_or_none()
        return None if row is None or row.body is None else _rule(row)

    def put_rule(
        self,
        rule_id: str,
        body: Mapping[str, Any],
        *,
        now_us: int,
        expected_version: int | None = None,
        told_only: Collection[str] = (),
    ) -> RuleRow:
        """Make or change a rule; a body that says what is there already changes nothing.

        Args:
            rule_id: stays for the rule's life.
            body: plain values.
            now_us: server time.
            expected_version: of the rule that the change was made from; 0: there must be none; None: whatever is there.
            told_only: fields whose change leaves `judged_version` as it is.

        Raises:
            Conflict: the rule is of another version than expected.
        """
        with self._writing() as connection:
            _lock_name(connection, f"rule:{rule_id}")
            of_it = rule.c.rule_id == rule_id
            held = connection.execute(sa.select(rule).where(of_it)).one_or_none()
            is_there = held is not None and held.body is not None
            version = held.version if held is not None and is_there else 0
            if expected_version is not None and expected_version != version:
                raise Conflict(
                    f"the rule {rule_id} is of version {version} and the change was made from {expected_version}; "
                    "read it again and repeat the change"
                )
            old = _rule(held) if held is not None and is_there else None
            if old is not None and plain.pack(old.body) == plain.pack(body):
                return old
            is_judged_so = old is not None and _without(old.body, told_only) == _without(body, told_only)
            judged = {JUDGED: old.judged_version} if old is not None and is_judged_so else {}
            values: dict[str, Any] = {"body": plain.pack({**body, **judged}), "updated_us": now_us}
            if held is None:
                connection.execute(sa.insert(rule).values(rule_id=rule_id, version=1, created_us=now_us, **values))
            else:
                values |= {"version": held.version + 1, "created_us": held.created_us if is_there else now_us}
                connection.execute(sa.update(rule).where(of_it).values(values))
            return _rule(connection.execute(sa.select(rule).where(of_it)).one())

    def delete_rule(self, rule_id: str, *, now_us: int) -> bool:
        """Forget a rule; False: there is none. Its open episodes are resolved by whoever evaluates."""
        with self._writing() as connection:
            forgotten = connection.execute(
                sa.update(rule)
                .where(rule.c.rule_id == rule_id, rule.c.body.is_not(None))
                .values(body=None, updated_us=now_us)
            )
            return forgotten.rowcount > 0

    def rule_status(self) -> dict[str, RuleStatus]:
        """What each rule is doing that ever made an episode."""
        with self._reading() as connection:
            return episodes.rule_status(connection)

    # ---- channels and silences -----------------------------------------------------------------

    def channels(self) -> list[ChannelRow]:
        """All channels, oldest first."""
        with self._reading() as connection:
            rows = connection.execute(sa.select(channel).order_by(channel.c.created_us, channel.c.channel_id))
            return [_channel(row) for row in rows]

    def put_channel(self, row: ChannelRow) -> None:
        """Make or replace a channel."""
        values = {
            "kind": row.kind,
            "name": row.name,
            "enabled": row.enabled,
            "options": plain.pack(row.options),
            "secrets": plain.pack(row.secrets),
            "updated_us": row.updated_us,
        }
        with self._writing() as connection:
            insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
            statement = insert(channel).values(channel_id=row.channel_id, created_us=row.created_us, **values)
            connection.execute(statement.on_conflict_do_update(index_elements=["channel_id"], set_=values))

    def delete_channel(self, channel_id: str) -> bool:
        """Forget a channel and its secrets; False: there is none. What waits to be sent there is given up."""
        with self._writing() as connection:
            episodes.give_up(connection, channel_id, "the channel was deleted")
            return connection.execute(sa.delete(channel).where(channel.c.channel_id == channel_id)).rowcount > 0

    def channel_status(self) -> dict[str, ChannelStatus]:
        """What became of each channel's notifications; channels without any are left out."""
        with self._reading() as connection:
            return episodes.channel_status(connection)

    def silences(self, now_us: int | None = None) -> list[SilenceRow]:
        """The silences that hold at a moment, oldest first; None: all."""
        statement = sa.select(silence).order_by(silence.c.created_us, silence.c.silence_id)
        if now_us is not None:
            statement = statement.where(sa.or_(silence.c.until_us.is_(None), silence.c.until_us > now_us))
        with self._reading() as connection:
            return [SilenceRow(**row._mapping) for row in connection.execute(statement)]

    def put_silence(self, row: SilenceRow) -> None:
        """Keep a new silence."""
        with self._writing() as connection:
            connection.execute(
                sa.insert(silence).values(
                    silence_id=row.silence_id,
                    rule_id=row.rule_id,
                    run_id=row.run_id,
                    layer=row.layer,
                    comment=row.comment,
                    created_us=row.created_us,
                    until_us=row.until_us,
                )
            )

    def lift_silence(self, silence_id: str) -> bool:
        """End a silence; False: there is none."""
        with self._writing() as connection:
            return connection.execute(sa.delete(silence).where(silence.c.silence_id == silence_id)).rowcount > 0

    # ---- what is new in runs -------------------------------------------------------------------

    def pulses(self, run_ids: Collection[str] = ()) -> dict[str, Pulse]:
        """How the runs are that are not over, and those asked for: by id, without those that are not there."""
        with self._reading() as connection:
            return pulses.select(connection, run_ids)

    def unfinished(self) -> set[str]:
        """Runs that are over of which evaluation has not seen the end, or which have an open episode."""
        with self._reading() as connection:
            return pulses.unfinished(connection)

    def series(self, run_id: str) -> dict[int, SeriesRow]:
        """The series of a run, by id."""
        with self._reading() as connection:
            return series_of(connection, run_id)

    def updates_since(
        self,
        run_id: str,
        cursors: Mapping[str, StreamCursor],
        wanted: Wanted,
        series: Mapping[int, SeriesRow] | None = None,
    ) -> Reading:
        """What lies behind the cursors of a run's streams; a stream without a cursor is read from its beginning.

        Args:
            run_id: the run.
            cursors: by stream, the server's own among them.
            wanted: what is looked at.
            series: the run's series by id, where they are known to be all; None: they are read.

        Returns:
            Each update with the cursor behind it; `is_behind` where there is more.
        """
        with self._reading() as connection:
            if series is None:
                series = series_of(connection, run_id)
            found = updates.read(connection, run_id, cursors, wanted, series)
        if not (wanted.frames or wanted.changes):
            return found
        return replace(found, steps=[self.with_frames(step, wanted) for step in found.steps])

    def with_frames(self, step: Step, wanted: Wanted) -> Step:
        """An update with what was newly sketched in its stream."""
        if step[0].stream == SERVER_STREAM:
            return step
        names = self.layer_names(step[0].run_id)
        return updates.with_frames(step, wanted, self._frame_moments, names) if names else step

    def layer_names(self, run_id: str) -> dict[int, str]:
        """The names of a run's layers, by id."""
        with self._reading() as connection:
            return {row.layer_id: row.name for row in layers.select(connection, run_id)}

    def write_server_event(
        self, run_id: str, kind: str, severity: str, attributes: Mapping[str, Any], *, now_us: int
    ) -> bool:
        """Write what the clock has decided into the run's own events; False: the run is not there.

        It stands at the run's newest step, in its newest attempt.
        """
        with self._writing() as connection:
            is_written = contact.note(connection, run_id, kind, severity=severity, attributes=attributes, now_us=now_us)
        if is_written:
            self._tell(run_id)
        return is_written

    # ---- evaluation ----------------------------------------------------------------------------

    def save_evaluations(self, evaluations: Sequence[Evaluation], *, now_us: int) -> set[str]:
        """Keep what evaluating some runs brought, in one transaction; of each run all or nothing.

        Returns:
            The runs of which nothing was kept: they were deleted, or somebody else has evaluated them meanwhile.
        """
        with self._writing() as connection:
            refused = episodes.save(connection, evaluations, now_us=now_us)
        self._tell(*(one.run_id for one in evaluations if one.episodes and one.run_id not in refused))
        return refused

    def save_evaluation(
        self,
        run_id: str,
        *,
        state: bytes | None = None,
        version: int = 0,
        is_done: bool = False,
        episodes: Sequence[EpisodeRow] = (),
        notices: Sequence[NoticeRow] = (),
        now_us: int,
    ) -> bool:
        """`save_evaluations` for one run; False: nothing was kept."""
        one = Evaluation(
            run_id=run_id, version=version, state=state, is_done=is_done, episodes=episodes, notices=notices
        )
        return not self.save_evaluations([one], now_us=now_us)

    def alert_state(self, run_id: str) -> tuple[bytes, int] | None:
        """(state, version) of a run's evaluation; None: it was never saved."""
        with self._reading() as connection:
            return episodes.state_of(connection, run_id)

    def take_lease(self, name: str, owner: str, until_us: int, *, now_us: int) -> bool:
        """Be the one that does something, or stay it; False: somebody else is, and its time is not over."""
        with self._writing() as connection:
            insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
            statement = insert(lease).values(name=name, owner=owner, until_us=until_us)
            is_free = sa.or_(lease.c.owner == owner, lease.c.until_us <= now_us)
            taken = statement.on_conflict_do_update(
                index_elements=["name"], set_={"owner": owner, "until_us": until_us}, where=is_free
            )
            return connection.execute(taken.returning(lease.c.name)).one_or_none() is not None

    # ---- episodes and notifications ------------------------------------------------------------

    def episodes(
        self,
        *,
        states: Collection[str] | None = None,
        run_id: str | None = None,
        rule_id: str | None = None,
        before: tuple[int, str] | None = None,
        changed_since_us: int | None = None,
        limit: int = 100,
    ) -> list[EpisodeRow]:
        """A page of episodes, those that began last first.

        Args:
            states: None: all, pending ones too.
            run_id: None: of all runs.
            rule_id: None: of all rules.
            before: (first_us, episode_id) of the last one of the page before.
            changed_since_us: only those whose newest change is of that moment or later.
            limit: at most so many.
        """
        with self._reading() as connection:
            return episodes.select(
                connection,
                states=states,
                run_id=run_id,
                rule_id=rule_id,
                before=before,
                changed_since_us=changed_since_us,
                limit=limit,
            )

    def episode(self, episode_id: str) -> EpisodeRow | None:
        """One episode, or None."""
        with self._reading() as connection:
            return episodes.find(connection, episode_id)

    def acknowledge(self, episode_id: str, by: str, *, now_us: int) -> EpisodeRow | None:
        """Note that somebody has seen an episode; who was first stays.

        Returns:
            The episode as it is now, or None: there is none.
        """
        with self._writing() as connection:
            episodes.acknowledge(connection, episode_id, by, now_us=now_us)
            found = episodes.find(connection, episode_id)
        if found is not None:
            self._tell(found.run_id)
        return found

    def count_episodes(self) -> EpisodeCounts:
        """The bell's numbers."""
        with self._reading() as connection:
            return episodes.counts(connection)

    def notices(self, *episode_ids: str) -> list[NoticeRow]:
        """The notifications of some episodes, oldest first."""
        with self._reading() as connection:
            return episodes.notices(connection, episode_ids)

    def claim_notices(
        self, *, now_us: int, limit: int, lease_s: float, except_channels: Collection[str] = ()
    ) -> list[NoticeRow]:
        """Take notifications that are due, oldest first; each goes to one caller, who must settle it in time.

        Args:
            now_us: server time.
            limit: at most so many.
            lease_s: after so long without `settle_notice` the sender counts as dead, and they are due again.
            except_channels: left alone, because more cannot be sent there at the moment.

        Returns:
            As they are now: `sending`, with this try counted.
        """
        with self._reading() as connection:
            if not episodes.is_due(connection, now_us=now_us):
                return []
        with self._writing() as connection:
            return episodes.claim(
                connection,
                now_us=now_us,
                limit=limit,
                until_us=now_us + int(lease_s * 1e6),
                except_channels=except_channels,
            )

    def settle_notice(
        self,
        claimed: NoticeRow,
        *,
        state: Literal["waiting", "sent", "failed"],
        now_us: int,
        error: str = "",
        due_us: int | None = None,
    ) -> bool:
        """Say what became of a claimed notification.

        Args:
            claimed: as `claim_notices` gave it.
            state: `waiting`: try again at `due_us`; `failed`: given up.
            now_us: server time.
            error: why it was not sent, without secrets.
            due_us: None: at once.

        Returns:
            False: its time was over and somebody else has claimed it, or its run was deleted.
        """
        values: dict[str, Any] = {"state": state, "error": plain.text(error, 2000)}
        if state == "sent":
            values["sent_us"] = now_us
        if state == "waiting":
            values["due_us"] = now_us if due_us is None else due_us
        with self._writing() as connection:
            return episodes.settle(connection, claimed, values)


def _lock_name(connection: sa.Connection, name: str) -> None:
    """Keep two who change one small thing apart, also where it is not there yet."""
    cursors.lock_run(connection, name)


def _without(body: Mapping[str, Any], names: Collection[str]) -> bytes:
    """The rest of a rule's body, to compare."""
    return plain.pack(sorted((name, value) for name, value in body.items() if name not in names))


def _rule(row: sa.Row[Any]) -> RuleRow:
    body = plain.unpack(row.body)
    return RuleRow(
        rule_id=row.rule_id,
        version=row.version,
        judged_version=body.pop(JUDGED, row.version),
        body=body,
        created_us=row.created_us,
        updated_us=row.updated_us,
    )


def _channel(row: sa.Row[Any]) -> ChannelRow:
    return ChannelRow(
        channel_id=row.channel_id,
        kind=row.kind,
        name=row.name,
        enabled=row.enabled,
        options=plain.unpack(row.options),
        secrets=plain.unpack(row.secrets),
        created_us=row.created_us,
        updated_us=row.updated_us,
    )
