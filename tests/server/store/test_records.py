"""Batches are hostile until checked: each thing that can be wrong is refused with what was seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from halfscope.wire.codec import chain, encode, pack_body
from halfscope.wire.messages import (
    GENESIS_DIGEST,
    Batch,
    Column,
    Declare,
    End,
    Event,
    Facts,
    Layer,
    Layers,
    Lost,
    Points,
    Series,
    Start,
)
from halfscope_server.store.checks import BadBatch
from halfscope_server.store.records import (
    FEW_ROWS,
    MAX_RECORDS,
    MAX_ROWS,
    Decoded,
    decode_batch,
    measured_of,
    series_id,
)
from halfscope_server.store.sketch_records import layer_id
from hypothesis import given
from hypothesis import strategies as st

LOSS = series_id("loss", {})


def decode(batch: Batch) -> Decoded:
    """With series 0 declared as loss, at the start of a journal."""
    return decode_batch(batch, digest=GENESIS_DIGEST, sids={0: LOSS})


def int64s(*values: int) -> bytes:
    return np.array(values, "<i8").tobytes()


def float64s(num: int) -> bytes:
    return np.zeros(num, "<f8").tobytes()


GOOD_COLUMN = Column(0, float64s(2))
MANY = FEW_ROWS + 1

BAD_RECORDS = {
    "no rows": Points(b"", b"", []),
    "half a step": Points(b"1234", b"1234", []),
    "times for other rows": Points(int64s(1, 2), int64s(1), [GOOD_COLUMN]),
    "too many rows": Points(int64s(*[0] * (MAX_ROWS + 1)), int64s(*[0] * (MAX_ROWS + 1)), []),
    "steps go back": Points(int64s(2, 1), int64s(1, 2), [GOOD_COLUMN]),
    "steps go back, many": Points(int64s(*range(MANY, 0, -1)), int64s(*range(MANY)), []),
    "negative step": Points(int64s(-1, 1), int64s(1, 2), [GOOD_COLUMN]),
    "step beyond floats": Points(int64s(1, 2**53 + 1), int64s(1, 2), [GOOD_COLUMN]),
    "negative time": Points(int64s(1, 2), int64s(1, -2), [GOOD_COLUMN]),
    "negative time, many": Points(int64s(*range(MANY)), int64s(*[-1] * MANY), []),
    "time beyond all clocks": Points(int64s(1, 2), int64s(1, 2**60), [GOOD_COLUMN]),
    "undeclared series": Points(int64s(1, 2), int64s(1, 2), [Column(1, float64s(2))]),
    "too few values": Points(int64s(1, 2), int64s(1, 2), [Column(0, float64s(1))]),
    "half a value": Points(int64s(1, 2), int64s(1, 2), [Column(0, float64s(2)[:-1])]),
    "row beyond the last": Points(int64s(1, 2), int64s(1, 2), [Column(0, float64s(1), np.array([2], "<u4").tobytes())]),
    "half a row number": Points(int64s(1, 2), int64s(1, 2), [Column(0, float64s(1), b"123")]),
    "values for other rows": Points(
        int64s(1, 2), int64s(1, 2), [Column(0, float64s(2), np.array([1], "<u4").tobytes())]
    ),
    "nameless series": Declare([Series(1, "")]),
    "endless series name": Declare([Series(1, "x" * 513)]),
    "NUL in a series name": Declare([Series(1, "a\x00b")]),
    "NUL in a unit": Declare([Series(1, "a", "\x00")]),
    "endless label": Declare([Series(1, "a", labels={"layer": "x" * 513})]),
    "too many labels": Declare([Series(1, "a", labels={str(k): "" for k in range(17)})]),
    "negative series number": Declare([Series(-1, "a")]),
    "huge series number": Declare([Series(2**40, "a")]),
    "another name for a series": Declare([Series(0, "gradient")]),
    "kindless event": Event("", 1, 1),
    "endless event kind": Event("x" * 65, 1, 1),
    "unknown severity": Event("skip", 1, 1, "apocalyptic"),
    "event at no step": Event("skip", 2**63, 1),
    "event at no time": Event("skip", 1, -1),
    "start at no time": Start(2**62, "p", "n"),
    "start at no step": Start(1, "p", "n", start_step=-5),
    "end at no step": End("finished", 2**60, 1),
    "lost of negative seqs": Lost(-1, 3, "quota"),
}


@pytest.mark.parametrize("record", BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_a_bad_record_is_refused(record: Any, make_sender: Callable[..., Any]) -> None:
    """One of each kind of wrongness, behind a good record."""
    with pytest.raises(BadBatch):
        decode(make_sender().batch(Facts(1, {}), record))


def test_a_good_batch_says_what_is_in_it(make_sender: Callable[..., Any]) -> None:
    """Seqs of what is kept by seq, range of steps, number of points, series touched."""
    sparse = Column(1, float64s(1), np.array([1], "<u4").tobytes())
    decoded = decode(
        make_sender().batch(
            Start(1, "p", "n"),
            Declare([Series(0, "loss"), Series(1, "lr", labels={"group": "0"})]),
            Event("skip", 3, 1),
            Points(int64s(7, 9), int64s(1, 2), [GOOD_COLUMN, sparse]),
            Points(int64s(2, 2), int64s(1, 2), [GOOD_COLUMN]),
            End("finished", 9, 1),
        )
    )
    lr = series_id("lr", {"group": "0"})
    assert ([seq for seq, _ in decoded.events], [seq for seq, _ in decoded.ends], decoded.end_seq) == ([2], [5], 6)
    assert (decoded.first_step, decoded.last_step, decoded.num_points) == (2, 9, 5)
    assert decoded.series_ids == {LOSS, lr}
    assert {sid: found[0] for sid, found in decoded.declared.items()} == {1: lr}


def test_a_lost_record_stands_for_the_seqs_it_replaced(make_sender: Callable[..., Any]) -> None:
    """The records behind it are numbered after them."""
    decoded = decode(make_sender().batch(Lost(0, 99, "quota"), Event("skip", 1, 1), count=101))
    assert [seq for seq, _ in decoded.events] == [100]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_count_that_the_records_do_not_bear_out_is_refused(make_sender: Callable[..., Any], count: int) -> None:
    """Otherwise the cursor would skip or repeat seqs."""
    with pytest.raises(BadBatch):
        decode(make_sender().batch(Facts(1, {}), Facts(2, {}), count=count))


def test_a_batch_that_does_not_continue_the_chain_is_refused(make_sender: Callable[..., Any]) -> None:
    """The digest is made again from the records, not believed."""
    batch = msgspec.structs.replace(make_sender().batch(Facts(1, {})), digest=bytes(16))
    with pytest.raises(BadBatch, match="do not continue the chain"):
        decode(batch)


def test_a_bomb_is_refused_before_it_is_decompressed(make_sender: Callable[..., Any]) -> None:
    """A body that declares more than it may is not decompressed, and neither is one whose declarations differ."""
    batch = make_sender().batch(Facts(1, {}))
    with pytest.raises(BadBatch, match="at most"):
        decode(msgspec.structs.replace(batch, raw_bytes=2**40))
    with pytest.raises(BadBatch, match="declares"):
        decode(msgspec.structs.replace(batch, raw_bytes=batch.raw_bytes + 1))


def test_too_many_records_are_refused() -> None:
    """A body of endless tiny records would hold up everybody's acks."""
    payload = encode(Declare([]))
    raw_bytes, body = pack_body([payload] * (MAX_RECORDS + 1))
    with pytest.raises(BadBatch, match=f"more than {MAX_RECORDS}"):
        decode(Batch("r", "s", 1, 0, MAX_RECORDS + 1, bytes(16), raw_bytes, body))


def test_deep_nesting_is_refused() -> None:
    """A config nested thousands deep must not exhaust the stack."""
    nested = b"\x91" * 100_000 + b"\xc0"
    payload = encode(Facts(1, {"deep": 1}))[:-1] + nested
    raw_bytes, body = pack_body([payload])
    with pytest.raises(BadBatch):
        decode(Batch("r", "s", 1, 0, 1, chain(GENESIS_DIGEST, payload), raw_bytes, body))


@given(payloads=st.lists(st.binary(max_size=60), max_size=4), first=st.integers(-5, 5), count=st.integers(-5, 5))
def test_no_bytes_do_anything_but_be_refused(payloads: list[bytes], first: int, count: int) -> None:
    """Random records never raise anything else."""
    digest = GENESIS_DIGEST
    for payload in payloads:
        digest = chain(digest, payload)
    raw_bytes, body = pack_body(payloads)
    with pytest.raises(BadBatch):
        decode(Batch("r", "s", 1, first, count, digest, raw_bytes, body))


def test_a_layer_is_its_number_once_and_for_all(make_sender: Callable[..., Any]) -> None:
    """Declared again alike it is nothing new; under another name it is refused."""
    sender = make_sender()
    layers = Layers([Layer(0, "a", [2, 3], "float32"), Layer(7, "b")])
    decoded = decode(sender.batch(layers, layers))
    assert {lid: layer_id for lid, (layer_id, _) in decoded.layers.items()} == {0: layer_id("a"), 7: layer_id("b")}
    again = sender.batch(Layers([Layer(0, "a", [2, 3], "float32")]))
    known = {0: layer_id("a"), 7: layer_id("b")}
    assert decode_batch(again, digest=decoded.batch.digest, sids={}, lids=known).layers == {}
    renamed = sender.batch(Layers([Layer(7, "c")]))
    with pytest.raises(BadBatch, match="was something else before"):
        decode_batch(renamed, digest=again.digest, sids={}, lids=known)


def test_layer_ids_depend_on_the_name_alone() -> None:
    """Fixed for ever: they are keys in databases."""
    assert layer_id("head.weight") == 2650968025178044986
    assert layer_id("head.weight") != layer_id("head.bias") != series_id("head.bias", {})
    assert 0 <= layer_id("anything") < 2**63


def test_sketches_widen_the_extent_and_are_counted(
    make_sender: Callable[..., Any], make_layers: Callable[..., Any], make_sketches: Callable[..., Any], make_cell: Any
) -> None:
    """A batch of nothing but sketches is kept, and its steps are the run's."""
    cells = {lid: make_cell([0.0, 2.0**-lid]) for lid in range(3)}
    batch = make_sender().batch(make_layers("a", "b", "c"), make_sketches(9, cells), make_sketches(4, {2: cells[2]}))
    decoded = decode(batch)
    assert (decoded.num_sketches, decoded.first_step, decoded.last_step, decoded.is_measured) == (4, 4, 9, True)
    assert [record.step for record in measured_of(batch.body, batch.raw_bytes)] == [9, 4]


def test_series_ids_depend_on_name_and_labels_alone() -> None:
    """The same on every replica and for ever: it is a key in the database."""
    assert series_id("loss", {}) == 8140138482823812427
    assert series_id("g", {"a": "1", "b": "2"}) == series_id("g", {"b": "2", "a": "1"})
    assert len({series_id("g", {}), series_id("g", {"a": ""}), series_id("g", {"": "a"})}) == 3
    assert 0 <= series_id("anything", {}) < 2**63


def test_points_of_a_body_are_read_again_later(make_sender: Callable[..., Any]) -> None:
    """Compaction and readers take the points and pass over the rest."""
    record = Points(int64s(1, 2), int64s(1, 2), [GOOD_COLUMN])
    batch = make_sender().batch(Facts(1, {}), record)
    assert list(measured_of(batch.body, batch.raw_bytes)) == [record]
