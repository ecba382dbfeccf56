"""Plain values: whatever a user puts in can be encoded, and is no larger than allowed."""

from __future__ import annotations

import argparse
import dataclasses
import enum
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from halfscope.record.plain import bounded, text
from hypothesis import given, settings
from hypothesis import strategies as st

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text() | st.integers(), inner, max_size=5),
    max_leaves=30,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.text(max_size=30), anything, max_size=10), st.integers(200, 5000))
def test_any_value_encodes_within_the_bound(values: dict[str, Any], max_bytes: int) -> None:
    """Also lone surrogates, huge integers, deep nesting and many entries."""
    assert len(msgspec.msgpack.encode(bounded(values, max_bytes))) <= max_bytes


def test_plain_values_stay_as_they_are() -> None:
    """What msgpack has is not touched."""
    values = {"a": 1, "b": 2.5, "c": None, "d": True, "e": "x", "f": [1, {"g": -(2**63)}]}
    assert bounded(values, 10_000) == values


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Options:
    lr: float
    path: Path


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Path("/data/x"), "/data/x"),
        (Colour.RED, "RED"),
        (Options(0.1, Path("y")), {"lr": 0.1, "path": "y"}),
        (argparse.Namespace(seed=3), {"seed": 3}),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        ({3}, [3]),
        (1 << 64, str(1 << 64)),
        (dict, "builtins.dict"),
        (b"12345", "<5 bytes>"),
        (np.zeros(3), "<numpy.ndarray>"),
        (object(), "<builtins.object>"),
    ],
)
def test_common_objects_become_what_a_reader_expects(value: object, wanted: object) -> None:
    """Options of the usual kinds, and a description where there is no plain value."""
    assert bounded({"value": value}, 10_000) == {"value": wanted}


def test_the_largest_entry_gives_way_first() -> None:
    """One huge entry does not cost the small ones, and the note names its size."""
    kept = bounded({"lr": 0.1, "table": list(range(5000)), "seed": 1}, 1000)
    assert kept["lr"] == 0.1
    assert kept["seed"] == 1
    assert kept["table"].startswith("left out: ")


def test_a_value_that_holds_itself_ends() -> None:
    """Self-reference is cut at a depth."""
    values: dict[str, Any] = {}
    values["self"] = values
    assert "nested more than" in str(bounded(values, 10_000))


def test_text_never_fails_to_encode() -> None:
    """File names and error messages may hold lone surrogates."""
    assert text("a\udcffb") == "a?b"
    assert len(text("x" * 20_000)) == 10_000
