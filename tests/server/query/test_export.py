"""Exported rows against what was written."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.query import RunView, Views, export, export_rows
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


def test_every_sketch_comes_out_as_it_was_counted(
    lite: Store, write_run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted again element by element; over several reads, merged and not; what there is none of is null."""
    monkeypatch.setattr(export, "SKETCHES_AT_ONCE", 5)
    rng = np.random.default_rng(1)
    gradients = {
        step: {f"{k}.weight": rng.normal(0, 10.0 ** -(3 * k), 40) for k in range(3)} for step in range(0, 70, 10)
    }
    gradients[20]["1.weight"][:5] = [np.nan, np.inf, -np.inf, 0.0, -0.0]
    gradients[30]["2.weight"][:] = 0.0
    del gradients[40]["0.weight"]
    writer = write_run()
    for step, frame in gradients.items():
        writer.frame(step, frame, np.nan if step == 10 else 1024.0, point="step")
        writer.commit()
        if step == 40:
            lite.compact(now_us=10**18, budget_s=10)
    rows = list(export_rows(view_of(lite), kinds=["sketches"]))
    json.dumps(rows, allow_nan=False)
    expected = [
        sketch_row(step, name, values, None if step == 10 else 1024.0)
        for step, frame in gradients.items()
        for name, values in sorted(frame.items())
    ]
    for row, wanted in zip(rows, expected, strict=True):
        for name in ("sum", "sumsq"):
            assert math.isclose(row.pop(name), wanted.pop(name), rel_tol=1e-12, abs_tol=1e-300)
        assert row == wanted


def sketch_row(step: int, layer: str, values: Any, scale: float | None) -> dict[str, Any]:
    """The row of a tensor, without any of our code."""
    elements = values.tolist()
    finite = [value for value in elements if math.isfinite(value)]
    nonzero = [abs(value) for value in finite if value]
    exponents = Counter(math.frexp(value)[1] - 1 for value in nonzero)
    return {
        "kind": "sketch",
        "of": "grad",
        "layer": layer,
        "rank": 0,
        "attempt": 0,
        "step": step,
        "scale": scale,
        "point": "step",
        "clipped": "no",
        "n": len(elements),
        "zeros": finite.count(0.0),
        "nan": sum(map(math.isnan, elements)),
        "pos_inf": elements.count(math.inf),
        "neg_inf": elements.count(-math.inf),
        "sum": math.fsum(finite),
        "sumsq": math.fsum(value * value for value in finite),
        "absmax": max(nonzero, default=None),
        "absmin_nonzero": min(nonzero, default=None),
        "exponents": {str(exponent): count for exponent, count in sorted(exponents.items())},
    }


def test_sums_that_overflowed_are_exported_by_name(lite: Store, write_run: Callable[..., Any]) -> None:
    """Squares of large float64 values are infinite."""
    writer = write_run()
    writer.frame(0, {"a": np.array([1e200, -1e200])}, math.inf)
    writer.commit()
    (row,) = export_rows(view_of(lite), kinds=["sketches"])
    assert (row["scale"], row["sum"], row["sumsq"], row["absmax"]) == ("Infinity", 0.0, "Infinity", 1e200)


def test_sketches_of_ranks_and_attempts_are_told_apart(lite: Store, write_run: Callable[..., Any]) -> None:
    """By attempt, then step, then rank."""
    for attempt, rank in ((0, 0), (0, 1), (1, 0)):
        writer = write_run(attempt=attempt, rank=rank, world_size=2)
        for step in (5, 6):
            writer.frame(step, {"a": np.full(1 + 10 * attempt + rank, 0.5)})
        writer.commit()
    rows = [
        (row["attempt"], row["step"], row["rank"], row["n"]) for row in export_rows(view_of(lite), kinds=["sketches"])
    ]
    assert rows == [(0, 5, 0, 1), (0, 5, 1, 2), (0, 6, 0, 1), (0, 6, 1, 2), (1, 5, 0, 11), (1, 6, 0, 11)]


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
