"""Slices of buckets: some elements of a gradient before and after its reduction, as each rank had them.

Owns the `bucket_slice` table. Must not judge errors. Invariant: a row holds the
record as it came, with layers by their id instead of the stream's own number.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import sqlalchemy as sa
from halfscope.wire.messages import Slices
from numpy.typing import NDArray

from halfscope_server.store import cursors, schema
from halfscope_server.store.cursors import StreamState

bucket_slice = schema.bucket_slice
stream = schema.stream


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BucketSlice:
    """What one rank said of one bucket at one step; E elements of L layers."""

    attempt: int
    step: int
    bucket: int
    rank: int
    stream: str
    time_us: int
    layer_ids: NDArray[np.int64]
    """[L]"""
    counts: NDArray[np.uint32]
    """[L]; their sum is E."""
    local: NDArray[np.float32]
    """[E], layer after layer: the rank's own gradient, scaled as the backward left it."""
    reduced: NDArray[np.float32]
    """[E], the same elements after the reduction."""
    divisor: float
    """What the reduction divides the sum by."""
    ranks: tuple[int, ...]
    """Which took part; empty: all of the run."""


def insert(connection: sa.Connection, brought: Sequence[tuple[StreamState, Slices, Sequence[int]]]) -> None:
    """Keep the records of some batches; of a bucket that comes twice at one step the first counts."""
    cursors.insert_missing(
        connection,
        bucket_slice,
        [
            {
                "run_id": state.run_id,
                "attempt": state.attempt,
                "step": record.step,
                "bucket": record.bucket,
                "stream": state.stream,
                "time_us": record.time_us,
                "body": _packed(record, layer_ids),
            }
            for state, record, layer_ids in brought
        ],
    )


def select(
    connection: sa.Connection,
    run_id: str,
    *,
    first_step: int | None = None,
    last_step: int | None = None,
    attempt: int | None = None,
    limit: int = 100_000,
) -> list[BucketSlice]:
    """The slices of some steps, both inclusive, ordered by (attempt, step, bucket, rank, stream)."""
    at = bucket_slice.c
    statement = (
        sa.select(bucket_slice, stream.c.rank)
        .join(stream, sa.and_(stream.c.run_id == at.run_id, stream.c.stream == at.stream))
        .where(at.run_id == run_id)
        .order_by(at.attempt, at.step, at.bucket, stream.c.rank, at.stream)
        .limit(limit)
    )
    if first_step is not None:
        statement = statement.where(at.step >= first_step)
    if last_step is not None:
        statement = statement.where(at.step <= last_step)
    if attempt is not None:
        statement = statement.where(at.attempt == attempt)
    return [_unpacked(row) for row in connection.execute(statement)]


def steps(
    connection: sa.Connection, run_id: str, attempt: int, *, limit: int, after: int | None, upto: int | None
) -> list[int]:
    """Steps of an attempt of which there are slices, ascending: the first behind `after`, else the last."""
    at = bucket_slice.c
    statement = sa.select(at.step).where(at.run_id == run_id, at.attempt == attempt).group_by(at.step).limit(limit)
    if upto is not None:
        statement = statement.where(at.step <= upto)
    if after is not None:
        statement = statement.where(at.step > after)
    ordered = statement.order_by(at.step if after is not None else at.step.desc())
    return sorted(connection.execute(ordered).scalars())


def _packed(record: Slices, layer_ids: Sequence[int]) -> bytes:
    ids = struct.pack(f"<{len(layer_ids)}q", *layer_ids)
    return msgspec.msgpack.encode((ids, record.counts, record.local, record.reduced, record.divisor, record.ranks))


def _unpacked(row: sa.Row[tuple[object, ...]]) -> BucketSlice:
    ids, counts, local, reduced, divisor, ranks = msgspec.msgpack.decode(row.body)
    return BucketSlice(
        attempt=row.attempt,
        step=row.step,
        bucket=row.bucket,
        rank=row.rank,
        stream=row.stream,
        time_us=row.time_us,
        layer_ids=np.frombuffer(ids, "<i8"),
        counts=np.frombuffer(counts, "<u4"),
        local=np.frombuffer(local, "<f4"),
        reduced=np.frombuffer(reduced, "<f4"),
        divisor=divisor,
        ranks=tuple(ranks),
    )
