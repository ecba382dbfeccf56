"""Saved comparisons as they are kept, on both databases."""

from __future__ import annotations

import dataclasses

from halfscope_server.store.store import Store
from halfscope_server.store.types import ComparisonRow

ROW = ComparisonRow(
    comparison_id="c1",
    name="FP32 against FP16",
    runs=("a", "b"),
    options={"metric": "loss", "tolerance_share": 0.005},
    created_us=10,
    updated_us=10,
)


def test_a_comparison_comes_back_as_it_was_saved(store: Store) -> None:
    """Also its options' floats; the last changed comes first, and when it was made stays."""
    other = dataclasses.replace(ROW, comparison_id="c2", name="other", created_us=20, updated_us=20)
    for row in (ROW, other):
        store.comparisons.add(row)
    assert store.comparisons.get("c1") == ROW
    assert store.comparisons.all() == [other, ROW]
    changed = dataclasses.replace(ROW, name="renamed", runs=("b", "a", "d"), options={}, created_us=30, updated_us=30)
    assert store.comparisons.change(changed)
    assert store.comparisons.all() == [dataclasses.replace(changed, created_us=10), other]


def test_a_comparison_that_is_not_there_is_neither_changed_nor_deleted(store: Store) -> None:
    """And a deleted one is gone for good."""
    store.comparisons.add(ROW)
    assert store.comparisons.delete("c1")
    assert not store.comparisons.delete("c1")
    assert not store.comparisons.change(ROW)
    assert store.comparisons.get("c1") is None
    assert store.comparisons.all() == []
