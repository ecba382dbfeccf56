"""Episodes, the notifications they made, and how far evaluation of each run is.

Owns the `episode`, `notice` and `alert_state` tables. Must not know what a rule means. Invariants: what an evaluation
found is kept together with how far it is, by compare-and-set, or not at all, so nothing is found twice; a notification
is kept once for (episode, channel, kind); nothing is kept of a run that is not there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from halfscope_server.store import cursors, plain, schema
from halfscope_server.store.types import EpisodeRow, NoticeRow

episode = schema.episode
notice = schema.notice
alert_state = schema.alert_state

FIRING = ("firing", "no_data")
"""States of episodes that people are told of."""
NOT_SETTLED = ("waiting", "sending")
REPEAT = "repeat:"
"""How the kinds of repetitions begin."""
KEYS_PER_QUERY = 500

_COLUMNS = tuple(column.name for column in episode.c if column.name != "body")
_BODY = tuple(entry.name for entry in fields(EpisodeRow) if entry.name not in _COLUMNS)
_KEPT = ("run_id", "episode_id", "acknowledged_us", "acknowledged_by")
"""Not overwritten: keys, and what people said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What evaluating a run brought."""

    run_id: str
    version: int
    """Of the state that it went on from; 0: there was none."""
    state: bytes | None
    """How far it is now; None: not changed, and `version` is not looked at."""
    is_done: bool = False
    """The run is over, and all of it was evaluated."""
    episodes: Sequence[EpisodeRow] = ()
    notices: Sequence[NoticeRow] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeCounts:
    """For the bell."""

    firing: int
    unacknowledged: int
    critical: int
    """Firing, critical and not acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleStatus:
    """What a rule is doing now."""

    firing: int
    pending: int
    errors: int
    last_fired_us: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelStatus:
    """What became of a channel's notifications."""

    last_sent_us: int | None
    last_error: str
    """Of the newest notification that is neither sent nor new; empty: none is."""
    num_waiting: int


def save(connection: sa.Connection, evaluations: Sequence[Evaluation], *, now_us: int) -> set[str]:
    """Keep evaluations of runs, one for each; all or nothing of each.

    Returns:
        The runs of which nothing was kept: deleted, or evaluated by somebody else meanwhile.
    """
    ordered = sorted(evaluations, key=lambda one: one.run_id)
    there = _present(connection, [one.run_id for one in ordered])
    refused = {one.run_id for one in ordered} - there
    for one in ordered:
        if one.run_id in there and one.state is not None and not _advance(connection, one, now_us=now_us):
            refused.add(one.run_id)
    kept = [one for one in ordered if one.run_id not in refused]
    _upsert(connection, [row for one in kept for row in one.episodes], now_us=now_us)
    notices = [(one.run_id, row) for one in kept for row in one.notices if not _is_needless(connection, row)]
    for run_id, row in notices:
        if row.kind.startswith(REPEAT):
            _supersede(connection, run_id, row)
    cursors.insert_missing(connection, notice, [_packed_notice(run_id, row) for run_id, row in notices])
    return refused


def _supersede(connection: sa.Connection, run_id: str, newer: NoticeRow) -> None:
    """A receiver that was down is told once how things stand, not as often as it could not be told."""
    connection.execute(
        sa.delete(notice).where(
            notice.c.run_id == run_id,
            notice.c.episode_id == newer.episode_id,
            notice.c.channel_id == newer.channel_id,
            notice.c.kind.startswith(REPEAT),
            notice.c.kind != newer.kind,
            notice.c.state == "waiting",
        )
    )


def _is_needless(connection: sa.Connection, row: NoticeRow) -> bool:
    """A repetition of what somebody has seen since it was decided on."""
    return row.kind.startswith(REPEAT) and _is_acknowledged(connection, row)


def _is_acknowledged(connection: sa.Connection, row: NoticeRow) -> bool:
    seen = sa.select(episode.c.episode_id).where(
        episode.c.episode_id == row.episode_id, episode.c.acknowledged_us.is_not(None)
    )
    return connection.execute(seen.limit(1)).first() is not None


def _present(connection: sa.Connection, run_ids: Sequence[str]) -> set[str]:
    """Those of the runs that are there, and will be until the end of the transaction."""
    run = schema.run
    found: set[str] = set()
    for at in range(0, len(run_ids), KEYS_PER_QUERY):
        statement = sa.select(run.c.run_id).where(run.c.run_id.in_(run_ids[at : at + KEYS_PER_QUERY]))
        # Weak enough for group commits, which change the same rows, to go on beside it.
        found.update(
            connection.execute(statement.order_by(run.c.run_id).with_for_update(read=True, key_share=True)).scalars()
        )
    return found


def _advance(connection: sa.Connection, one: Evaluation, *, now_us: int) -> bool:
    values = {"version": one.version + 1, "is_done": one.is_done, "updated_us": now_us, "state": one.state}
    if one.version == 0:
        insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
        statement = insert(alert_state).values(run_id=one.run_id, **values).on_conflict_do_nothing()
        return connection.execute(statement.returning(alert_state.c.version)).one_or_none() is not None
    moved = connection.execute(
        sa.update(alert_state)
        .where(alert_state.c.run_id == one.run_id, alert_state.c.version == one.version)
        .values(values)
    )
    return moved.rowcount == 1


def _upsert(connection: sa.Connection, rows: Sequence[EpisodeRow], *, now_us: int) -> None:
    # The last one of each: several changes of an episode may be saved at once.
    newest = {(row.run_id, row.episode_id): row for row in rows}
    for key in sorted(key for key, row in newest.items() if row.state == "resolved" and row.fired_us is None):
        # Over before it fired: that is no history.
        connection.execute(sa.delete(episode).where(episode.c.run_id == key[0], episode.c.episode_id == key[1]))
        del newest[key]
    if not newest:
        return
    insert = (sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert)(episode)
    changed = {name: insert.excluded[name] for name in (*_COLUMNS, "body") if name not in _KEPT}
    statement = insert.on_conflict_do_update(index_elements=["run_id", "episode_id"], set_=changed)
    connection.execute(statement, [_packed(replace(newest[key], updated_us=now_us)) for key in sorted(newest)])


def state_of(connection: sa.Connection, run_id: str) -> tuple[bytes, int] | None:
    """(state, version) of a run's evaluation."""
    row = connection.execute(
        sa.select(alert_state.c.state, alert_state.c.version).where(alert_state.c.run_id == run_id)
    ).one_or_none()
    return None if row is None else (bytes(row.state), row.version)


def select(
    connection: sa.Connection,
    *,
    states: Collection[str] | None,
    run_id: str | None,
    rule_id: str | None,
    before: tuple[int, str] | None,
    changed_since_us: int | None,
    limit: int,
) -> list[EpisodeRow]:
    """A page of episodes, those that began last first."""
    statement = sa.select(episode).order_by(episode.c.first_us.desc(), episode.c.episode_id.desc()).limit(limit)
    if states is not None:
        statement = statement.where(episode.c.state.in_(states))
        if "resolved" not in states:
            statement = statement.where(episode.c.state != "resolved")  # lets the partial index serve
    if run_id is not None:
        statement = statement.where(episode.c.run_id == run_id)
    if rule_id is not None:
        statement = statement.where(episode.c.rule_id == rule_id)
    if changed_since_us is not None:
        statement = statement.where(episode.c.updated_us >= changed_since_us)
    if before is not None:
        bound = sa.tuple_(sa.literal(before[0]), sa.literal(before[1]))
        statement = statement.where(sa.tuple_(episode.c.first_us, episode.c.episode_id) < bound)
    return [_unpacked(row) for row in connection.execute(statement)]


def find(connection: sa.Connection, episode_id: str) -> EpisodeRow | None:
    """One episode."""
    row = connection.execute(sa.select(episode).where(episode.c.episode_id == episode_id)).one_or_none()
    return None if row is None else _unpacked(row)


def acknowledge(connection: sa.Connection, episode_id: str, by: str, *, now_us: int) -> None:
    """Note who has seen it; the first one stays. Repetitions that wait to be sent are not needed any more."""
    connection.execute(
        sa.delete(notice).where(
            notice.c.episode_id == episode_id, notice.c.kind.startswith(REPEAT), notice.c.state == "waiting"
        )
    )
    connection.execute(
        sa.update(episode)
        .where(episode.c.episode_id == episode_id, episode.c.acknowledged_us.is_(None))
        .values(acknowledged_us=now_us, acknowledged_by=plain.text(by, 200), updated_us=now_us)
    )


def counts(connection: sa.Connection) -> EpisodeCounts:
    """Of all runs, now."""
    rows = connection.execute(
        sa.select(episode.c.severity, episode.c.acknowledged_us.is_(None), sa.func.count())
        .where(episode.c.state != "resolved", episode.c.state.in_(FIRING))
        .group_by(episode.c.severity, episode.c.acknowledged_us.is_(None))
    ).all()
    return EpisodeCounts(
        firing=sum(row[2] for row in rows),
        unacknowledged=sum(row[2] for row in rows if row[1]),
        critical=sum(row[2] for row in rows if row[1] and row[0] == "critical"),
    )


def rule_status(connection: sa.Connection) -> dict[str, RuleStatus]:
    """Of every rule that made an episode."""
    is_open = episode.c.state != "resolved"
    now = connection.execute(
        sa.select(episode.c.rule_id, episode.c.state, sa.func.count())
        .where(is_open)
        .group_by(episode.c.rule_id, episode.c.state)
    ).all()
    fired = connection.execute(
        sa.select(episode.c.rule_id, sa.func.max(episode.c.fired_us)).group_by(episode.c.rule_id)
    ).all()
    by_state = {(row[0], row[1]): row[2] for row in now}
    return {
        rule_id: RuleStatus(
            firing=sum(by_state.get((rule_id, state), 0) for state in FIRING),
            pending=by_state.get((rule_id, "pending"), 0),
            errors=by_state.get((rule_id, "error"), 0),
            last_fired_us=fired_us,
        )
        for rule_id, fired_us in fired
    }


def notices(connection: sa.Connection, episode_ids: Sequence[str]) -> list[NoticeRow]:
    """The notifications of some episodes, oldest first."""
    found = []
    for at in range(0, len(episode_ids), KEYS_PER_QUERY):
        wanted = episode_ids[at : at + KEYS_PER_QUERY]
        statement = sa.select(notice).where(notice.c.episode_id.in_(wanted))
        found += [_unpacked_notice(row) for row in connection.execute(statement)]
    return sorted(found, key=lambda row: (row.created_us, row.episode_id, row.channel_id, row.kind))


def is_due(connection: sa.Connection, *, now_us: int) -> bool:
    """Whether there is anything to claim: looking takes no lock from those who write."""
    due = sa.select(notice.c.kind).where(notice.c.state.in_(NOT_SETTLED), notice.c.due_us <= now_us).limit(1)
    return connection.execute(due).first() is not None


def claim(
    connection: sa.Connection, *, now_us: int, limit: int, until_us: int, except_channels: Collection[str] = ()
) -> list[NoticeRow]:
    """Take notifications that are due; while nobody settles them, they are this caller's until a moment.

    What waits for another try goes along with something new to the same channel, so that nobody reads the end of an
    episode before its beginning.
    """
    is_due = sa.and_(
        notice.c.state.in_(NOT_SETTLED), notice.c.due_us <= now_us, notice.c.channel_id.not_in(except_channels)
    )
    channels = sa.select(notice.c.channel_id).where(is_due)
    statement = (
        sa.select(notice)
        .where(sa.or_(is_due, sa.and_(notice.c.state == "waiting", notice.c.channel_id.in_(channels))))
        .order_by(notice.c.due_us, notice.c.created_us)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    taken = []
    for row in connection.execute(statement).all():
        claimed = replace(_unpacked_notice(row), state="sending", num_tries=row.num_tries + 1, due_us=until_us)
        connection.execute(
            sa.update(notice)
            .where(*_is_notice(claimed), notice.c.run_id == row.run_id)
            .values(state="sending", num_tries=claimed.num_tries, due_us=until_us)
        )
        taken.append(claimed)
    return taken


def settle(connection: sa.Connection, claimed: NoticeRow, values: dict[str, Any]) -> bool:
    """Say what became of a claimed notification; False: it was claimed anew since, or is gone."""
    is_retry = values["state"] == "waiting" and claimed.kind.startswith(REPEAT)
    if is_retry and (_is_superseded(connection, claimed) or _is_acknowledged(connection, claimed)):
        # While this one was on its way a newer one was made, or somebody saw what it tells of: it is not tried again.
        left = sa.delete(notice).where(*_is_notice(claimed), notice.c.state == "sending")
        return connection.execute(left.where(notice.c.num_tries == claimed.num_tries)).rowcount > 0
    settled = connection.execute(
        sa.update(notice)
        .where(*_is_notice(claimed), notice.c.state == "sending", notice.c.num_tries == claimed.num_tries)
        .values(values)
    )
    return settled.rowcount > 0


def _is_superseded(connection: sa.Connection, row: NoticeRow) -> bool:
    newer = sa.select(notice.c.kind).where(
        notice.c.episode_id == row.episode_id,
        notice.c.channel_id == row.channel_id,
        notice.c.kind.startswith(REPEAT),
        notice.c.created_us > row.created_us,
    )
    return connection.execute(newer.limit(1)).first() is not None


def give_up(connection: sa.Connection, channel_id: str, error: str) -> None:
    """Send nothing more to a channel."""
    connection.execute(
        sa.update(notice)
        .where(notice.c.channel_id == channel_id, notice.c.state.in_(NOT_SETTLED))
        .values(state="failed", error=error)
    )


def channel_status(connection: sa.Connection) -> dict[str, ChannelStatus]:
    """Of every channel that was ever given a notification."""
    is_sent, waits = notice.c.state == "sent", notice.c.state.in_(NOT_SETTLED)
    rows = connection.execute(
        sa.select(
            notice.c.channel_id,
            sa.func.max(sa.case((is_sent, notice.c.sent_us))).label("sent_us"),
            sa.func.sum(sa.case((waits, 1), else_=0)).label("num_waiting"),
        ).group_by(notice.c.channel_id)
    ).all()
    troubled = connection.execute(
        sa.select(notice.c.channel_id, notice.c.error)
        .where(notice.c.error != "", notice.c.state != "sent")
        .order_by(notice.c.created_us.desc())
        .limit(KEYS_PER_QUERY)
    ).all()
    errors = {row[0]: row[1] for row in reversed(troubled)}
    return {
        row.channel_id: ChannelStatus(
            last_sent_us=row.sent_us, last_error=errors.get(row.channel_id, ""), num_waiting=int(row.num_waiting)
        )
        for row in rows
    }


def _is_notice(row: NoticeRow) -> list[sa.ColumnElement[bool]]:
    return [
        notice.c.episode_id == row.episode_id,
        notice.c.channel_id == row.channel_id,
        notice.c.kind == row.kind,
    ]


def _packed(row: EpisodeRow) -> dict[str, Any]:
    columns = {name: getattr(row, name) for name in _COLUMNS}
    return columns | {"body": plain.pack({name: getattr(row, name) for name in _BODY})}


def _unpacked(row: sa.Row[Any]) -> EpisodeRow:
    return EpisodeRow(**{name: getattr(row, name) for name in _COLUMNS}, **plain.unpack(row.body))


def _packed_notice(run_id: str, row: NoticeRow) -> dict[str, object]:
    columns = {entry.name: getattr(row, entry.name) for entry in fields(NoticeRow)}
    return columns | {"run_id": run_id, "body": plain.pack(row.body)}


def _unpacked_notice(row: sa.Row[Any]) -> NoticeRow:
    columns = {entry.name: getattr(row, entry.name) for entry in fields(NoticeRow)}
    return NoticeRow(**columns | {"body": plain.unpack(row.body)})
