"""Rows of charts of ranks: no row mixes nodes where it need not, and each node is named once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from halfscope_server.panels.rank_rows import MOST_LABELS, Rows, rows_of
from halfscope_server.query import Window
from halfscope_server.query.ranks import MAX_ROWS, in_rows, node_starts


def rows_drawn(
    node_of: Callable[[int], str], num_ranks: int, width_px: int = 1000
) -> tuple[Rows, list[tuple[int, int]]]:
    """The labels of a job's rows, and the first and last rank of each."""
    ranks = np.arange(num_ranks)
    hosts = {rank: node_of(rank) for rank in range(num_ranks)}
    value, bad = np.ones((num_ranks, 1)), np.zeros((num_ranks, 1), np.int64)
    one = np.zeros(1, np.int64)
    nodes = node_starts(ranks, hosts)
    cells = in_rows(ranks, value, bad, step=one, last_step=one, time_us=one, width=1, nodes=nodes)
    rows = list(zip(cells.first_name.tolist(), cells.last_name.tolist(), strict=True))
    assert [rank for first, last in rows for rank in range(first, last + 1)] == list(range(num_ranks))
    assert len(rows) <= MAX_ROWS
    labels = rows_of(cells, "rank", hosts, Window(width_px=width_px))
    assert len(labels.ticks) <= MOST_LABELS
    return labels, rows


def test_every_one_of_a_few_ranks_is_labelled_and_each_node_named_once() -> None:
    """The name of a node, without its domain, stands at its first rank, with a line above the second node."""
    labels, _ = rows_drawn(lambda rank: f"gpu-{rank // 8}.cluster.example.org", 16)
    named = {0: "gpu-0 · 0", 8: "gpu-1 · 8"}
    assert labels.ticks == {rank: named.get(rank, str(rank)) for rank in range(16)}
    assert labels.parted == [8]
    assert labels.title == "rank"


@pytest.mark.parametrize("sizes", [[30, 30, 10], [8] * 8, [8] * 33, [200, 1], [7] * 64])
def test_no_row_mixes_nodes_while_there_are_fewer_nodes_than_rows(sizes: list[int]) -> None:
    """Each name stands at a row of its node, in the middle where it has several."""
    node_of = [f"node{node}" for node, size in enumerate(sizes) for _ in range(size)]
    labels, rows = rows_drawn(lambda rank: node_of[rank], sum(sizes))
    assert all(node_of[first] == node_of[last] for first, last in rows)
    assert labels.title == "node"
    assert [node_of[rows[row][0]] for row in labels.ticks] == list(labels.ticks.values())
    assert len(set(labels.ticks.values())) == len(labels.ticks)
    begins = [row for row in range(1, len(rows)) if node_of[rows[row][0]] != node_of[rows[row - 1][0]]]
    assert list(labels.parted) in (begins, [])


def test_rows_of_more_nodes_than_there_is_room_for_hold_whole_nodes() -> None:
    """128 nodes of 8 ranks are two to a row, named by the first of them, evenly."""
    labels, rows = rows_drawn(lambda rank: f"node{rank // 8:03d}", 1024)
    assert rows == [(first, first + 15) for first in range(0, 1024, 16)]
    assert labels.ticks == {row: f"node{2 * row:03d}" for row in range(0, 64, 4)}
    assert not labels.parted


def test_where_nodes_take_turns_rows_are_of_ranks_as_they_are_counted() -> None:
    """So they are where there is one node, or nothing is known of it."""
    for node_of in (lambda rank: f"node{rank % 2}", lambda rank: "here", lambda rank: ""):
        labels, rows = rows_drawn(node_of, 200)
        assert rows == [(first, first + 3) for first in range(0, 200, 4)]
        assert labels.title == "rank"
        assert list(labels.ticks.items())[:2] == [(0, "0–3"), (4, "16–19")]


def test_long_names_are_shortened_most_where_there_is_least_room() -> None:
    """The margin is as wide as what stands in it."""
    wide, narrow = (rows_drawn(lambda rank: f"accelerated-west-{rank:04d}", 40, px)[0] for px in (1000, 400))
    assert wide.ticks[0].startswith("acc")
    assert wide.ticks[0].endswith("0000")
    assert max(map(len, narrow.ticks.values())) < max(map(len, wide.ticks.values())) <= 16
    assert narrow.width_px < wide.width_px


def test_the_worst_and_the_first_that_is_not_finite_of_a_row_are_named() -> None:
    """Against a plain search."""
    draw = np.random.default_rng(3)
    value = np.where(draw.random((130, 20)) < 0.1, np.nan, draw.normal(0, 1, (130, 20)))
    bad = draw.integers(0, 3, (130, 20)) * (draw.random((130, 20)) < 0.05)
    steps = np.arange(20)
    cells = in_rows(np.arange(130) * 2, value, bad, step=steps, last_step=steps, time_us=steps, width=1)
    for row, (first, last) in enumerate(zip(cells.first_name.tolist(), cells.last_name.tolist(), strict=True)):
        part = range(first // 2, last // 2 + 1)
        for column in range(20):
            known = [rank for rank in part if not np.isnan(value[rank, column])]
            largest = max(known, key=lambda rank: value[rank, column], default=-1)
            assert cells.worst[row, column] == (2 * largest if known else -1)
            counts = [int(bad[rank, column]) for rank in part]
            assert cells.bad[row, column] == sum(counts)
            most = part[counts.index(max(counts))] * 2 if any(counts) else -1
            assert cells.most_bad[row, column] == most
