"""How the runs are that are not over: how far each stream is, and when anything was last heard of it.

What somebody who follows all runs looks at every few seconds. Must not read data. Invariant: one statement for all
runs, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import sqlalchemy as sa

from halfscope_server.store import plain, schema
from halfscope_server.store.types import SERVER_STREAM, RunState

NOT_OVER: tuple[RunState, ...] = ("waiting", "live", "lost")
"""States of runs that may go on; contact that was lost is often regained."""

run = schema.run
stream = schema.stream
episode = schema.episode
alert_state = schema.alert_state


@dataclass(slots=True, kw_only=True)
class Pulse:
    """One run, now."""

    run_id: str
    state: RunState
    project: str
    name: str
    tags: Sequence[str]
    created_us: int
    updated_us: int
    """Server time of the newest committed frame."""
    last_step: int | None
    next: dict[str, int] = field(default_factory=dict)
    """By stream, the server's own among them."""
    ended: dict[str, str] = field(default_factory=dict)
    """How each stream ended; empty: it goes on."""
    seen_us: int = 0
    """When any agent was last heard of, also of one that has nothing new."""

    @property
    def is_over(self) -> bool:
        return self.state not in NOT_OVER


def select(connection: sa.Connection, run_ids: Collection[str]) -> dict[str, Pulse]:
    """By id."""
    chosen = sa.or_(run.c.state.in_(NOT_OVER), run.c.run_id.in_(sorted(run_ids)))
    rows = connection.execute(
        sa.select(
            run.c.run_id,
            run.c.state,
            run.c.project,
            run.c.name,
            run.c.tags,
            run.c.created_us,
            run.c.updated_us,
            run.c.last_step,
            stream.c.stream,
            stream.c.next,
            stream.c.ended,
            stream.c.seen_us,
        )
        .join(stream, stream.c.run_id == run.c.run_id)
        .where(chosen)
    )
    found: dict[str, Pulse] = {}
    for row in rows:
        pulse = found.get(row.run_id)
        if pulse is None:
            columns: Mapping[str, object] = row._asdict()
            own = {name: columns[name] for name in ("run_id", "state", "project", "name", "created_us", "updated_us")}
            pulse = found[row.run_id] = Pulse(**own, tags=plain.unpack(row.tags), last_step=row.last_step)  # type: ignore[arg-type]
        pulse.next[row.stream] = row.next
        pulse.ended[row.stream] = row.ended
        if row.stream != SERVER_STREAM:
            pulse.seen_us = max(pulse.seen_us, row.seen_us)
    return found


def unfinished(connection: sa.Connection) -> set[str]:
    """Runs that are over, of which evaluation has not said that it has seen the end, or which have an open episode.

    One that was never evaluated counts where a rule is as old as the run: others were made for what was to come.
    """
    rule = schema.rule
    first_us = sa.select(sa.func.min(rule.c.created_us)).where(rule.c.body.is_not(None)).scalar_subquery()
    is_left = sa.or_(
        sa.and_(alert_state.c.run_id.is_(None), run.c.created_us >= first_us),
        alert_state.c.is_done.is_(False),
        run.c.updated_us > alert_state.c.updated_us,
    )
    behind = (
        sa.select(run.c.run_id)
        .outerjoin(alert_state, alert_state.c.run_id == run.c.run_id)
        .where(run.c.state.not_in(NOT_OVER), is_left)
    )
    is_open = (
        sa.select(run.c.run_id)
        .join(episode, episode.c.run_id == run.c.run_id)
        .where(run.c.state.not_in(NOT_OVER), episode.c.state != "resolved")
    )
    return set(connection.execute(behind).scalars()) | set(connection.execute(is_open).scalars())
