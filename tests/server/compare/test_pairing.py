"""Which layers and frames stand beside each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from halfscope_server.compare.pairing import match_names, match_places
from hypothesis import given, settings
from hypothesis import strategies as st

PLAIN = ["0.weight", "0.bias", "1.weight", "1.bias"]


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "_orig_mod.module.", "_fsdp_wrapped_module."])
def test_names_under_wrappers_match(prefix: str) -> None:
    """As DistributedDataParallel, DataParallel, torch.compile and FSDP call them, on either side."""
    wrapped = [prefix + name for name in PLAIN]
    pairs = [(at, at) for at in range(len(PLAIN))]
    assert match_names(PLAIN, wrapped) == pairs
    assert match_names(wrapped, PLAIN) == pairs
    assert match_names(wrapped, [f"module.{name}" for name in PLAIN]) == pairs


def test_names_match_in_the_order_of_the_second_and_never_by_guess() -> None:
    """Forward order differs between runs; a part called `module` may be the user's own."""
    assert match_names(["a", "b", "c"], ["c", "x", "a"]) == [(2, 0), (0, 2)]
    assert match_names(["module.a", "a"], ["a", "module.a"]) == [(1, 0), (0, 1)]
    assert match_names(["module.a", "module.module.a"], ["_orig_mod.a"]) == []
    assert match_names([], ["a"]) == []


def test_frames_at_the_same_places_stand_beside_each_other() -> None:
    """An interval five times as long, and extra frames of one run, change nothing."""
    one, two = np.arange(0, 1000, 10.0), np.sort(np.append(np.arange(0, 1000, 50.0), [13.0, 14.0, 999.0]))
    rows_one, rows_two = match_places(one, two)
    np.testing.assert_array_equal(one[rows_one], np.arange(0, 1000, 50))
    np.testing.assert_array_equal(two[rows_two], np.arange(0, 1000, 50))


def test_where_intervals_do_not_fit_the_nearest_stands_beside() -> None:
    """Each once, and none that lies further than half an interval away."""
    one, two = np.arange(0, 400, 10.0), np.arange(0, 400, 7.0)
    rows_one, rows_two = match_places(one, two)
    assert rows_one.size == one.size
    assert (np.abs(one[rows_one] - two[rows_two]) <= 3.5).all()


AXES = st.lists(st.integers(0, 60), unique=True, max_size=20).map(lambda x: np.sort(np.array(x, np.float64)))


@settings(max_examples=60)
@given(AXES, AXES)
def test_no_frame_stands_beside_two(one: Any, two: Any) -> None:
    """In both orders of the runs; all ascending; no further away than half of the longer interval."""
    for a, b in ((one, two), (two, one)):
        rows_a, rows_b = match_places(a, b)
        assert rows_a.size == rows_b.size
        for rows in (rows_a, rows_b):
            assert (np.diff(rows) > 0).all()
        reach = max([float(np.median(np.diff(x))) for x in (a, b) if x.size > 1], default=0.0) / 2
        assert (np.abs(a[rows_a] - b[rows_b]) <= reach).all()
        if set(a) <= set(b):
            assert rows_a.size == a.size
