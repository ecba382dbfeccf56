"""The store: one database, its write path and its reads behind one class.

Owns the order between writer and readers. Must not import ingest, query or api. Invariant: writing goes through one
connection, reading through a pool that cannot write, each read in one snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal, Self

import sqlalchemy as sa
from halfscope.wire.messages import Batch, Bye, Gone, Hello, Welcome

from halfscope_server.errors import Unavailable
from halfscope_server.store import (
    bucket_slices,
    compactor,
    contact,
    cursors,
    events,
    frames,
    layers,
    managing,
    rank_reading,
    reading,
    runs,
    schema,
)
from halfscope_server.store.alerting import AlertStore
from halfscope_server.store.bucket_slices import BucketSlice
from halfscope_server.store.cells import COUNTS, FLOATS
from halfscope_server.store.committer import Committer
from halfscope_server.store.comparing import ComparisonStore
from halfscope_server.store.engine import Database
from halfscope_server.store.frames import FrameSelection
from halfscope_server.store.news import News
from halfscope_server.store.rank_states import RankStore
from halfscope_server.store.rank_tables import RankTable, RankTables
from halfscope_server.store.reading import Selection, StepValues
from halfscope_server.store.tails import Tails
from halfscope_server.store.types import (
    CommitResult,
    EventMarks,
    EventRow,
    Extent,
    FrameMoments,
    FrameSketches,
    LayerRow,
    Points,
    Rollup,
    RunRow,
    SeriesRow,
    StreamRow,
    TokenRow,
)


class Store:
    """Everything that is kept. Writing methods are for ingest's one writer thread, the others for any thread.

    Methods raise `Unavailable` when the database cannot be reached or does not take a write.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._tails = Tails()
        self._rank_tables = RankTables()
        self._committer = Committer(database, self._tails, self._rank_tables)
        self._news: News | None = None
        self.alerts = AlertStore(self._writing, self._reading, self._tell, self.frame_moments)
        self.ranks = RankStore(self._writing, self._reading, self._tell)
        self.comparisons = ComparisonStore(self._writing, self._reading)

    @classmethod
    def open(cls, url: str, *, read_only: bool = False) -> Self:
        """Open a database, bringing its tables up to date.

        Args:
            url: `sqlite:////absolute/path.db` or `postgresql://user:password@host/name`.
            read_only: for commands that look at the database while a server runs on it.

        Raises:
            ValueError: the URL is none of these.
            Unavailable: it is held by another server, cannot be reached, or was made by a newer halfscope.
        """
        return cls(Database(url, read_only=read_only))

    @property
    def dialect(self) -> Literal["sqlite", "postgresql"]:
        return self._database.dialect

    def listen(self, heard: Callable[[frozenset[str]], object]) -> None:
        """Tell other servers on this PostgreSQL which runs change here, and be told of theirs; nothing on SQLite.

        Args:
            heard: called, from a thread of its own, with runs that another server changed. Hints may be lost or
                doubled: the cursors decide what is new.
        """
        if self.dialect == "postgresql":
            assert self._news is None, "one listener per store"
            self._news = News(self._database, heard)
            self._news.start()

    def close(self) -> None:
        """Close all connections."""
        if self._news is not None:
            self._news.stop()
        self._database.close()

    # ---- writing: the one writer thread --------------------------------------------------------

    def grant(self, hello: Hello, *, now_us: int) -> Welcome | Gone:
        """Give a stream to the connection that said hello; any older connection of the stream is fenced off."""
        return self.grant_all([hello], now_us=now_us)[0]

    def grant_all(self, hellos: Sequence[Hello], *, now_us: int) -> list[Welcome | Gone]:
        """`grant` for many at once: after a restart every agent comes back in the same second.

        Returns:
            One answer per greeting, in their order.
        """
        answers: dict[int, Welcome | Gone] = {}
        states = []
        with self._writing() as connection:
            for at, hello in sorted(enumerate(hellos), key=lambda item: (item[1].run_id, item[1].stream)):
                cursors.lock_run(connection, hello.run_id)
                if managing.deleted(connection, hello.run_id) is not None:
                    answers[at] = Gone(hello.run_id, hello.stream)
                    continue
                state = cursors.grant(connection, hello, now_us=now_us)
                answers[at] = Welcome(state.run_id, state.stream, state.epoch, state.next, state.digest)
                states.append(state)
            for state in states:
                if contact.regain(connection, state.key, now_us=now_us) is not None:
                    state.ended, state.ended_us = "", None
                    contact.note_regained(connection, state, now_us=now_us)
        for state in states:
            self._committer.remember(state)
        return [answers[at] for at in range(len(hellos))]

    def commit(self, batches: Sequence[Batch], *, now_us: int) -> CommitResult:
        """Apply a group of batches in one transaction.

        Args:
            batches: in order of arrival; those of one stream follow one another.
            now_us: server time.

        Returns:
            What became of them. A batch that is neither applied nor refused was a resend, an overlap or left a gap:
            `next` says where its stream is.
        """
        with self._translated():
            result = self._committer.commit(batches, now_us=now_us)
        self._tell(*(applied.run_id for applied in result.applied))
        return result

    def bye(self, bye: Bye, *, now_us: int) -> None:
        """Note how the agent's side of a stream ended."""
        with self._writing() as connection:
            state = contact.bye(connection, bye, now_us=now_us)
        if state is not None:
            self._committer.forget(state.key)
        self._tell(bye.run_id)

    def touch(self, streams: Collection[tuple[str, str]], *, now_us: int) -> None:
        """Note that these streams' agents are there, though they have nothing new."""
        with self._writing() as connection:
            for state in contact.touch(connection, streams, now_us=now_us):
                self._committer.forget(state.key)

    def mark_lost_contact(self, *, silent_since_us: int, now_us: int) -> list[str]:
        """End the open streams that were last heard of before a moment.

        Returns:
            The runs concerned.
        """
        with self._writing() as connection:
            lost = contact.mark_lost(connection, silent_since_us=silent_since_us, now_us=now_us)
        for state in lost:
            self._committer.forget(state.key)
        run_ids = sorted({state.run_id for state in lost})
        self._tell(*run_ids)
        return run_ids

    def compact(self, *, now_us: int, budget_s: float) -> int:
        """Merge segments into chunks where that is due, for about as long as the budget says.

        Returns:
            How many merges were made; 0: nothing is due.
        """
        with self._translated():
            return compactor.compact(self._database, now_us=now_us, budget_s=budget_s)

    # ---- reading: any thread -------------------------------------------------------------------

    def list_runs(self) -> list[RunRow]:
        """All runs, newest first."""
        with self._reading() as connection:
            return runs.select(connection)

    def get_run(self, run_id: str) -> RunRow | None:
        """One run, or None: not known, or deleted."""
        with self._reading() as connection:
            found = runs.select(connection, run_id)
        return found[0] if found else None

    def runs_named(self, project: str, name: str) -> list[RunRow]:
        """The runs of a name in a project, newest first."""
        with self._reading() as connection:
            return runs.select_named(connection, project, name)

    def streams(self, run_id: str) -> list[StreamRow]:
        """The agents' streams of a run by (attempt, rank, stream)."""
        with self._reading() as connection:
            return [row for row, _ in reading.streams_of(connection, run_id)]

    def series(self, run_id: str) -> list[SeriesRow]:
        """The series of a run, by name and labels."""
        with self._reading() as connection:
            found = reading.series_of(connection, run_id).values()
        return sorted(found, key=lambda row: (row.name, sorted(row.labels.items())))

    def sids(self, run_id: str, stream: str) -> dict[int, int]:
        """Number within a stream -> id of the series, as far as declarations are stored."""
        with self._reading() as connection:
            return cursors.sids(connection, (run_id, stream))

    def points(
        self,
        run_id: str,
        series_id: int,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        attempt: int | None = None,
        stretches: Sequence[tuple[int, int]] = (),
    ) -> Points:
        """Raw values of a series in the order (step, attempt, rank, stream, arrival); both bounds are inclusive.

        Args:
            stretches: (first, last) steps, ascending and apart, of which alone points are wanted: one read for all of
                them, which unpacks no more than they need. None: all.
        """
        with self._translated():
            wanted = Selection(
                run_id=run_id,
                series_id=series_id,
                first_step=first_step,
                last_step=last_step,
                rank=rank,
                attempt=attempt,
                stretches=tuple(stretches),
            )
            return reading.points(self._database, self._tails, wanted)

    def extent(
        self, run_id: str, series_id: int, *, rank: int | None = None, attempt: int | None = None
    ) -> Extent | None:
        """Where a series has points, how many and how large, over the ranks and attempts asked for; None: nowhere."""
        with self._translated():
            wanted = Selection(run_id=run_id, series_id=series_id, rank=rank, attempt=attempt)
            return reading.extent(self._database, self._tails, wanted)

    def rollup(
        self,
        run_id: str,
        series_id: int,
        width: int,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        attempt: int | None = None,
    ) -> Rollup:
        """Summaries of a series over the ranks and attempts asked for.

        Args:
            run_id: the run.
            series_id: the series.
            width: steps per bucket, a multiple of 64.
            first_step: the buckets from the one that holds it.
            last_step: the buckets up to the one that holds it; both are given whole.
            rank: None: all, added up.
            attempt: likewise.
        """
        _check_width(width)
        with self._translated():
            wanted = Selection(
                run_id=run_id,
                series_id=series_id,
                first_step=first_step,
                last_step=last_step,
                rank=rank,
                attempt=attempt,
            )
            return reading.rollup(self._database, self._tails, wanted, width)

    def rank_points(
        self,
        run_id: str,
        series_ids: Sequence[int],
        *,
        attempt: int,
        first_step: int | None = None,
        last_step: int | None = None,
    ) -> dict[int, dict[int, StepValues]]:
        """Steps and values of some series on each rank of an attempt, by series and rank, in one read.

        Those of a rank ascend by step; of a step that came twice the last counts.
        """
        with self._translated():
            wanted = Selection(run_id=run_id, series_id=0, first_step=first_step, last_step=last_step, attempt=attempt)
            return reading.points_by_rank(self._database, self._tails, wanted, series_ids)

    @contextmanager
    def rank_table(self, run_id: str, attempt: int, nexts: Mapping[str, int]) -> Iterator[RankTable | None]:
        """What this server has kept of an attempt while it was recorded, to be looked at inside the context.

        Args:
            run_id: which run.
            attempt: which of its attempts.
            nexts: the cursors of its streams that it has to cover.

        Yields:
            The table, which may know of more than that; None: the store has to be read.
        """
        with self._rank_tables.lock:
            table = self._rank_tables.table(run_id, attempt)
            if len(nexts) > 1 and (table is None or not table.covers(nexts)):
                with self._translated():
                    rank_reading.complete(self._database, self._rank_tables, self._tails, run_id, attempt)
                table = self._rank_tables.table(run_id, attempt)
            yield table if table is not None and table.covers(nexts) else None

    def rank_extents(self, run_id: str, series_id: int, *, attempt: int | None = None) -> dict[int, Extent]:
        """`extent` of each rank that has any, ascending by rank, in one read."""
        with self._translated():
            wanted = Selection(run_id=run_id, series_id=series_id, attempt=attempt)
            return reading.extents_by_rank(self._database, self._tails, wanted)

    def rank_rollups(
        self,
        run_id: str,
        series_id: int,
        width: int,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        attempt: int | None = None,
    ) -> dict[int, Rollup]:
        """`rollup` of each rank that has any, ascending by rank, in one read."""
        _check_width(width)
        with self._translated():
            wanted = Selection(
                run_id=run_id, series_id=series_id, first_step=first_step, last_step=last_step, attempt=attempt
            )
            return reading.rollups_by_rank(self._database, self._tails, wanted, width)

    def layers(self, run_id: str) -> list[LayerRow]:
        """The layers of a run, in the order of registration."""
        with self._reading() as connection:
            return layers.select(connection, run_id)

    def layer_parts(self, run_id: str) -> dict[str, dict[int, str]]:
        """layer_id -> which part of it, of each stream that has not all of it. Streams of one part hold the same."""
        with self._reading() as connection:
            return layers.parts(connection, run_id)

    def slices(
        self,
        run_id: str,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        attempt: int | None = None,
        limit: int = 100_000,
    ) -> list[BucketSlice]:
        """Slices of buckets of some steps, both inclusive, ordered by (attempt, step, bucket, rank, stream)."""
        with self._reading() as connection:
            return bucket_slices.select(
                connection, run_id, first_step=first_step, last_step=last_step, attempt=attempt, limit=limit
            )

    def slice_steps(
        self, run_id: str, *, attempt: int, limit: int, after: int | None = None, upto: int | None = None
    ) -> list[int]:
        """Steps of an attempt of which there are slices, ascending.

        Args:
            after: the first ones behind this step are wanted; None: the last ones.
            upto: the last step of interest.
        """
        with self._reading() as connection:
            return bucket_slices.steps(connection, run_id, attempt, limit=limit, after=after, upto=upto)

    def count_frames(self, run_id: str, *, of: str = "grad") -> int:
        """How many sketched steps there are, over all attempts and ranks."""
        with self._translated():
            return frames.count(self._database, self._tails, run_id, of)

    def frame_kinds(self, run_id: str) -> list[str]:
        """What kinds of tensors were sketched: `grad`, `update`."""
        with self._translated():
            return frames.kinds(self._database, self._tails, run_id)

    def frame_moments(
        self,
        run_id: str,
        *,
        layer_ids: Sequence[int] | None = None,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        attempt: int | None = None,
        of: str = "grad",
        columns: Collection[str] = (*COUNTS, *FLOATS),
    ) -> FrameMoments:
        """What is kept beside the histograms, of many layers at once.

        Args:
            run_id: the run.
            layer_ids: in the order wanted; None: all, in the order of registration. One that the run does not have is
                present nowhere.
            first_step: inclusive, like last_step.
            last_step: None: no bound.
            rank: None: all; frames of several ranks are frames of their own.
            attempt: likewise.
            of: kind of tensor.
            columns: of `FrameMoments`, those that are wanted: each costs its time and memory.

        Returns:
            All frames there are in these bounds, also those in which none of the layers was sketched.
        """
        wanted = _frames_wanted(run_id, of, layer_ids, first_step, last_step, rank, attempt)
        with self._translated():
            return frames.moments(self._database, self._tails, wanted, columns)

    def frame_sketches(
        self,
        run_id: str,
        layer_ids: Sequence[int] | None,
        *,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        attempt: int | None = None,
        of: str = "grad",
    ) -> FrameSketches:
        """The sketches of some layers; see `frame_moments`. Memory goes with frames x layers x bins x 8 bytes."""
        wanted = _frames_wanted(run_id, of, layer_ids, first_step, last_step, rank, attempt)
        with self._translated():
            return frames.sketches(self._database, self._tails, wanted)

    def events(
        self,
        run_id: str,
        *,
        kinds: Sequence[str] | None = None,
        first_step: int | None = None,
        last_step: int | None = None,
        rank: int | None = None,
        after: tuple[int, int, str, int] | None = None,
        limit: int = 1000,
        newest_first: bool = False,
    ) -> list[EventRow]:
        """A page of events in the order (attempt, step, stream, seq).

        Args:
            run_id: the run.
            kinds: None: all.
            first_step: inclusive, like last_step.
            last_step: None: no bound.
            rank: None: of all.
            after: (attempt, step, stream, seq) of the last event of the page before, in the same direction.
            limit: at most so many.
            newest_first: the order reversed.
        """
        with self._reading() as connection:
            return events.select(
                connection,
                run_id,
                kinds=kinds,
                first_step=first_step,
                last_step=last_step,
                rank=rank,
                after=after,
                limit=limit,
                newest_first=newest_first,
            )

    def count_events(
        self, run_id: str, *, first_step: int | None = None, last_step: int | None = None, rank: int | None = None
    ) -> dict[str, int]:
        """Number of events by kind."""
        with self._reading() as connection:
            return events.count(connection, run_id, first_step=first_step, last_step=last_step, rank=rank)

    def event_marks(self, run_id: str, kinds: Sequence[str]) -> EventMarks:
        """Where events of these kinds lie; quick for runs of a million steps."""
        with self._reading() as connection:
            return events.marks(connection, run_id, kinds)

    def versions(self, run_id: str) -> dict[str, int]:
        """The reader's cursor: per stream, the first seq not taken in yet. The server's own stream is among them."""
        stream = schema.stream
        with self._reading() as connection:
            rows = connection.execute(sa.select(stream.c.stream, stream.c.next).where(stream.c.run_id == run_id))
            return {row[0]: row[1] for row in rows}

    # ---- managing: any thread ------------------------------------------------------------------

    def rename_run(self, run_id: str, name: str) -> bool:
        """Give a run another name; False: no such run."""
        with self._writing() as connection:
            is_renamed = managing.rename(connection, run_id, name)
        self._tell(run_id)
        return is_renamed

    def set_tags(self, run_id: str, tags: Sequence[str]) -> bool:
        """Replace a run's tags; False: no such run."""
        with self._writing() as connection:
            is_tagged = managing.set_tags(connection, run_id, tags)
        self._tell(run_id)
        return is_tagged

    def delete_run(self, run_id: str, *, now_us: int) -> bool:
        """Delete a run and all of its data; False: no such run. Its agents are told that it is gone."""
        with self._writing() as connection:
            is_deleted = managing.delete(connection, run_id, now_us=now_us)
        self._tails.forget(run_id)
        self._rank_tables.forget(run_id)
        self._tell(run_id)
        return is_deleted

    def deleted_run(self, run_id: str) -> tuple[str, int] | None:
        """(name, when) of a run that was deleted, or None."""
        with self._reading() as connection:
            return managing.deleted(connection, run_id)

    def put_token(self, token_hash: str, *, name: str, created_us: int) -> None:
        """Keep a bearer token by its hash."""
        with self._writing() as connection:
            managing.put_token(connection, token_hash, name=name, created_us=created_us)

    def list_tokens(self) -> list[TokenRow]:
        """The tokens that were given out and not revoked."""
        with self._reading() as connection:
            return managing.tokens(connection)

    def find_token(self, token_hash: str) -> str | None:
        """The name a token was given out under, or None."""
        with self._reading() as connection:
            return managing.find_token(connection, token_hash)

    def revoke_token(self, token_hash: str) -> bool:
        """Forget a token; False: it was not known."""
        with self._writing() as connection:
            return managing.revoke_token(connection, token_hash)

    def put_session(self, session_hash: str, *, created_us: int, expires_us: int) -> None:
        """Keep a browser session by its hash."""
        with self._writing() as connection:
            managing.put_session(connection, session_hash, created_us=created_us, expires_us=expires_us)

    def find_session(self, session_hash: str) -> int | None:
        """When a session ends, or None: not known."""
        with self._reading() as connection:
            return managing.find_session(connection, session_hash)

    def delete_session(self, session_hash: str) -> bool:
        """Forget a session; False: it was not known. Of two who forget it at once, one is told True."""
        with self._writing() as connection:
            return managing.delete_session(connection, session_hash)

    def _tell(self, *run_ids: str) -> None:
        """Other servers, after COMMIT."""
        if self._news is not None and run_ids:
            self._news.tell(run_ids)

    @contextmanager
    def _writing(self) -> Iterator[sa.Connection]:
        with self._translated(), self._database.writing() as connection:
            yield connection

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._translated(), self._database.reading() as connection:
            yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """The database's own errors in our words."""
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise Unavailable(
                f"the database did not answer as it should ({type(error.orig).__name__}: {error.orig}); "
                "check that it is running and that its disk is not full"
            ) from error


def _check_width(width: int) -> None:
    if width < 64 or width % 64:
        raise ValueError(f"a rollup of {width} steps was asked for; expected a multiple of 64")


def _frames_wanted(
    run_id: str,
    kind: str,
    layer_ids: Sequence[int] | None,
    first_step: int | None,
    last_step: int | None,
    rank: int | None,
    attempt: int | None,
) -> FrameSelection:
    return FrameSelection(
        run_id=run_id,
        kind=kind,
        layer_ids=None if layer_ids is None else tuple(layer_ids),
        first_step=first_step,
        last_step=last_step,
        rank=rank,
        attempt=attempt,
    )
