"""Layers as they are declared: parameter tensors by name, and the numbers that streams give them.

Owns the `layer` and `stream_layer` tables. Must not decode sketches. Invariant: a layer is its name; what else is said
of it is the newest declaration's, but for its place, which is the smallest number that any stream gave it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from halfscope_server.store import cursors, plain, schema
from halfscope_server.store.cursors import StreamState
from halfscope_server.store.prepared import Prepared, Query
from halfscope_server.store.records import Decoded
from halfscope_server.store.types import LayerRow

RUNS_KEPT = 32
"""Whose layers are kept in memory, as they are in the tables."""

layer = schema.layer
stream_layer = schema.stream_layer
_LAYERS = Query(
    sa.select(layer.c.layer_id, layer.c.name, layer.c.shape, layer.c.dtype, layer.c.place)
    .where(layer.c.run_id == sa.bindparam("run_id"))
    .order_by(layer.c.place, layer.c.name)
)
_DECLARED = Query(
    sa.select(stream_layer.c.stream, stream_layer.c.lid, stream_layer.c.layer_id).where(
        stream_layer.c.run_id == sa.bindparam("run_id")
    )
)


def insert(connection: sa.Connection, brought: Sequence[tuple[StreamState, Decoded]]) -> None:
    """Keep the declarations of some batches, in ascending order of their keys: two replicas may bring the same."""
    rows: dict[tuple[str, int], dict[str, Any]] = {}
    lids: list[dict[str, object]] = []
    for state, decoded in brought:
        for lid, (layer_id, declared) in decoded.layers.items():
            key = (state.run_id, layer_id)
            rows[key] = {
                "run_id": state.run_id,
                "layer_id": layer_id,
                "place": min(lid, rows[key]["place"]) if key in rows else lid,
                "name": declared.name,
                "dtype": declared.dtype,
                "shape": plain.pack(declared.shape),
            }
            lids.append(
                {
                    "run_id": state.run_id,
                    "stream": state.stream,
                    "lid": lid,
                    "layer_id": layer_id,
                    "part": declared.part,
                }
            )
    if not rows:
        return
    _upsert(connection.dialect.name).run(connection, [rows[key] for key in sorted(rows)])
    cursors.insert_missing(connection, stream_layer, lids)


@lru_cache
def _upsert(dialect: str) -> Prepared:
    statement = (sqlite.insert if dialect == "sqlite" else postgresql.insert)(layer)
    new = statement.excluded
    place = sa.case((new.place < layer.c.place, new.place), else_=layer.c.place)
    return Prepared(
        statement.on_conflict_do_update(
            index_elements=["run_id", "layer_id"], set_={"place": place, "dtype": new.dtype, "shape": new.shape}
        )
    )


def select(connection: sa.Connection, run_id: str) -> list[LayerRow]:
    """The layers of a run, in the order of registration."""
    return list(_built(run_id, tuple(map(tuple, _LAYERS.rows(connection, {"run_id": run_id})))))


@lru_cache(maxsize=RUNS_KEPT)
def _built(run_id: str, rows: tuple[tuple[Any, ...], ...]) -> tuple[LayerRow, ...]:
    """Kept: of a run that is looked at they are asked for twice a second, and hardly ever change."""
    return tuple(
        LayerRow(
            run_id=run_id, layer_id=layer_id, name=name, shape=tuple(plain.unpack(shape)), dtype=dtype, place=place
        )
        for layer_id, name, shape, dtype, place in rows
    )


def ids(connection: sa.Connection, run_id: str) -> tuple[int, ...]:
    """Their ids, in the same order."""
    return tuple(_LAYERS.rows(connection, {"run_id": run_id}).scalars())


def parts(connection: sa.Connection, run_id: str) -> dict[str, dict[int, str]]:
    """layer_id -> which part of it, of each stream that has not all of it. Streams of one part hold the same."""
    rows = connection.execute(
        sa.select(stream_layer.c.stream, stream_layer.c.layer_id, stream_layer.c.part).where(
            stream_layer.c.run_id == run_id, stream_layer.c.part != ""
        )
    ).all()
    found: dict[str, dict[int, str]] = {}
    for stream, layer_id, part in rows:
        found.setdefault(stream, {})[layer_id] = part
    return found


def by_stream(connection: sa.Connection, run_id: str) -> dict[str, dict[int, int]]:
    """lid -> layer_id of everything that each stream of a run has declared."""
    rows = _DECLARED.rows(connection, {"run_id": run_id}).all()
    found: dict[str, dict[int, int]] = {}
    for stream, lid, layer_id in rows:
        found.setdefault(stream, {})[lid] = layer_id
    return found
