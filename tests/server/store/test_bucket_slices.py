"""Slices of buckets: kept once, read back bit for bit by step and rank, refused where they are not as agreed."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from halfscope.wire.codec import decode_record, unpack_body
from halfscope.wire.messages import Column, Declare, Layer, Layers, Points, Series, Slices
from halfscope_server.store import schema
from halfscope_server.store.sketch_records import layer_id
from halfscope_server.store.store import Store

LAYERS = Layers([Layer(0, "a.weight", [4, 2], "float32"), Layer(1, "b.weight", [3], "float32", "data:1/2")])
LOCAL = np.array([1.0, np.inf, -0.0], "<f4")
REDUCED = np.array([0.5, np.nan, 2.0**-149], "<f4")


def record(step: int, bucket: int = 0, **changed: Any) -> Slices:
    fields: dict[str, Any] = {
        "step": step,
        "time_us": 1000 * step,
        "bucket": bucket,
        "lids": struct.pack("<2I", 1, 0),
        "counts": struct.pack("<2I", 1, 2),
        "local": LOCAL.tobytes(),
        "reduced": REDUCED.tobytes(),
        "divisor": 2.0,
        "ranks": [0, 1],
    }
    return Slices(**{**fields, **changed})


def test_slices_are_read_back_bit_for_bit_in_the_order_of_step_bucket_and_rank(
    store: Store, begun: Callable[..., Any]
) -> None:
    """What two ranks sent, in whatever order, with the ids of the layers that their numbers stood for."""
    one = begun(stream="00000000000000b1", rank=1)
    zero = begun(stream="00000000000000a0", rank=0)
    assert not store.commit([one.batch(LAYERS, record(5), record(5, 1))], now_us=3).refused
    assert not store.commit([zero.batch(LAYERS, record(4), record(5))], now_us=4).refused
    found = store.slices(zero.run_id)
    assert [(s.step, s.bucket, s.rank) for s in found] == [(4, 0, 0), (5, 0, 0), (5, 0, 1), (5, 1, 1)]
    assert [s.rank for s in store.slices(zero.run_id, first_step=5, last_step=5)] == [0, 1, 1]
    last = found[-1]
    assert last.layer_ids.tolist() == [layer_id("b.weight"), layer_id("a.weight")]
    assert last.counts.tolist() == [1, 2]
    assert (last.local.tobytes(), last.reduced.tobytes()) == (LOCAL.tobytes(), REDUCED.tobytes())
    assert (last.divisor, last.ranks, last.time_us) == (2.0, (0, 1), 5000)
    assert store.layer_parts(zero.run_id) == {
        stream: {layer_id("b.weight"): "data:1/2"} for stream in (one.stream, zero.stream)
    }


def test_a_batch_sent_twice_is_kept_once_and_a_deleted_run_leaves_none(store: Store, begun: Callable[..., Any]) -> None:
    """Slices go with the batch that brought them, and with the run; what is kept of the batch is its points alone."""
    sender = begun()
    points = Points(struct.pack("<q", 5), struct.pack("<q", 5000), [Column(7, struct.pack("<d", math.inf))])
    batch = sender.batch(LAYERS, Declare([Series(7, "loss")]), points, record(5))
    store.commit([batch], now_us=3)
    store.commit([batch], now_us=4)
    assert len(store.slices(sender.run_id)) == 1
    with store._reading() as connection:
        ((raw_bytes, body),) = connection.execute(sa.select(schema.segment.c.raw_bytes, schema.segment.c.body)).all()
    assert list(map(decode_record, unpack_body(body, raw_bytes))) == [points]
    store.delete_run(sender.run_id, now_us=5)
    assert store.slices(sender.run_id) == []


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"lids": b"\0" * 7}, "bytes of layers"),
        ({"counts": struct.pack("<2I", 1, 3)}, "expected 16 in both"),
        ({"reduced": b""}, "expected 12 in both"),
        ({"bucket": -1}, "bucket"),
        ({"lids": struct.pack("<2I", 0, 9)}, "of layer 9"),
    ],
)
def test_what_is_not_as_agreed_is_refused(
    store: Store, begun: Callable[..., Any], changed: dict[str, Any], word: str
) -> None:
    """The refusal says what was seen and what was expected, and nothing of the batch is kept."""
    sender = begun()
    refused = store.commit([sender.batch(LAYERS, record(5, **changed))], now_us=3).refused
    assert len(refused) == 1
    assert word in refused[0].message
    assert store.slices(sender.run_id) == []
