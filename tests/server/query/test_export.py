"""Exported rows against what was written."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from halfscope_server.query import RunView, Views, export_rows
from halfscope_server.store.store import Store


def view_of(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


def test_every_point_comes_out_as_it_went_in(lite: Store, write_run: Callable[..., Any]) -> None:
    """Nothing rounded or thinned over two stretches of reading; non-finite values by name."""
    rng = np.random.default_rng(0)
    steps = np.concatenate([np.arange(50), np.arange(100_000, 100_050)])
    values = rng.normal(size=100)
    values[[3, 50, 99]] = [np.nan, np.inf, -np.inf]
    writer = write_run()
    writer.points("loss", steps, values)
    writer.points("lr", [0], [0.1], group="head")
    writer.commit()
    rows = list(export_rows(view_of(lite), kinds=["points"]))
    json.dumps(rows, allow_nan=False)
    losses = [row for row in rows if row["series"] == "loss"]
    names = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
    back = [names.get(row["value"], row["value"]) for row in losses]
    assert np.array_equal(np.array(back, float), values, equal_nan=True)
    assert [row["step"] for row in losses] == steps.tolist()
    assert rows[-1] == {
        "kind": "point",
        "series": "lr",
        "labels": {"group": "head"},
        "rank": 0,
        "attempt": 0,
        "step": 0,
        "time": "2023-11-14T22:13:20.000000Z",
        "value": 0.1,
    }


def test_a_glob_chooses_series_and_kinds_choose_rows(lite: Store, write_run: Callable[..., Any]) -> None:
    """Events have no series, so they come only when asked for."""
    writer = write_run()
    for name in ("val/loss", "val/acc", "loss"):
        writer.points(name, [0], 1.0)
    writer.skip(0, "probe")
    writer.commit()
    view = view_of(lite)
    assert {row["series"] for row in export_rows(view, series="val/*", kinds=["points"])} == {"val/loss", "val/acc"}
    assert [row["kind"] for row in export_rows(view, kinds=["events"])] == ["event"]
    assert list(export_rows(view, kinds=["sketches"])) == []


def test_every_event_comes_out_in_order(lite: Store, write_run: Callable[..., Any]) -> None:
    """More than one page of them, with attributes that JSON can hold."""
    writer = write_run()
    for step in range(1500):
        writer.skip(step, "single", scale=float("inf"))
    writer.commit()
    rows = list(export_rows(view_of(lite), kinds=["events"]))
    assert [row["step"] for row in rows] == list(range(1500))
    assert rows[0]["event"] == "skip"
    assert rows[0]["attributes"] == {"class": "single", "scale": "Infinity"}
    json.dumps(rows, allow_nan=False)


def test_attempts_and_ranks_are_told_apart(lite: Store, write_run: Callable[..., Any]) -> None:
    """The same step of another attempt or rank is another row."""
    for attempt, rank in ((0, 0), (0, 1), (1, 0)):
        writer = write_run(attempt=attempt, rank=rank, world_size=2)
        writer.points("loss", [5], float(10 * attempt + rank))
        writer.commit()
    rows = [(row["attempt"], row["rank"], row["value"]) for row in export_rows(view_of(lite), kinds=["points"])]
    assert rows == [(0, 0, 0.0), (0, 1, 1.0), (1, 0, 10.0)]
