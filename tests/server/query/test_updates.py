"""Lost updates per step and layer, against the changes that were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.query import RunView, Views, updates
from halfscope_server.query.export import export_rows
from halfscope_server.query.frames import run_frames
from halfscope_server.query.health import judge
from halfscope_server.query.updates import update_moments
from halfscope_server.store.store import Store
from numpy.typing import NDArray

WriteRun = Callable[..., Any]


def newest(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


def changes(seed: int, n: int = 40) -> NDArray[np.float64]:
    """What a step changed in a layer: some of it nothing at all."""
    rng = np.random.default_rng(seed)
    return rng.normal(0.0, 1e-4, n) * (rng.random(n) < 0.6)


def write(writer: Any, steps: range) -> dict[int, dict[str, NDArray[np.float64]]]:
    """Gradients at every step, updates at those but each third."""
    written: dict[int, dict[str, NDArray[np.float64]]] = {}
    writer.points("loss", np.array(steps), 1.0)
    for step in steps:
        writer.frame(step, {"a.w": np.ones(3), "b.w": np.zeros(2)})
        if step % 3:
            written[step] = {"b.w": changes(1000 + step)}
            if step % 4:
                written[step] = {"a.w": changes(step), **written[step]}
            writer.frame(step, written[step], of="update")
    writer.commit()
    return written


def test_updates_are_what_was_written(lite: Store, write_run: WriteRun) -> None:
    """By layer in forward order; a layer that was not looked at has none; gradients are as they were."""
    writer = write_run()
    writer.facts(parameters_order=["b.w", "a.w"])
    written = write(writer, range(1, 20))
    view = newest(lite)
    found = update_moments(view)
    assert found is not None
    assert found.names == ("b.w", "a.w")
    assert found.step.tolist() == list(written)
    for row, layers in enumerate(written.values()):
        for column, name in enumerate(found.names):
            values = layers.get(name, np.zeros(0))
            assert (found.n[row, column], found.zeros[row, column]) == (values.size, (values == 0).sum())
    frames = run_frames(view)
    assert frames is not None
    assert frames.table.n.tolist() == [[2, 3]] * 19
    assert update_moments(view) is found


def test_of_a_training_that_went_back_the_later_attempt_stands(lite: Store, write_run: WriteRun) -> None:
    """Steps that were done again are told as they were the second time."""
    write(write_run(), range(1, 20))
    writer = write_run(attempt=1, now_us=10**15)
    writer.points("loss", range(10, 15), 1.0)
    for step in range(10, 15):
        writer.frame(step, {"a.w": np.ones(3)})
        writer.frame(step, {"a.w": np.zeros(7)}, of="update")
    writer.commit()
    found = update_moments(newest(lite))
    assert found is not None
    assert found.step.tolist() == [1, 2, 4, 5, 7, 8, 10, 11, 12, 13, 14]
    column = found.names.index("a.w")
    assert found.n[6:, column].tolist() == found.zeros[6:, column].tolist() == [7] * 5


def test_of_a_very_long_run_neighbours_are_added_up(
    lite: Store, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more cells are kept than of gradients; no element is lost."""
    written = write(write_run(), range(1, 60))
    monkeypatch.setattr(updates, "MAX_CELLS", 20)
    found = update_moments(newest(lite))
    assert found is not None
    assert found.n.size <= 20
    column = found.names.index("b.w")
    assert found.n[:, column].sum() == sum(layers["b.w"].size for layers in written.values())
    assert found.zeros[:, column].sum() == sum(int((layers["b.w"] == 0).sum()) for layers in written.values())


def test_a_run_without_them_has_none(lite: Store, write_run: WriteRun) -> None:
    """An agent of before, and a run without layers at all."""
    writer = write_run()
    writer.points("loss", range(3), 1.0)
    writer.commit()
    assert update_moments(newest(lite)) is None
    writer.frame(3, {"a.w": np.ones(3)})
    writer.commit()
    assert update_moments(newest(lite)) is None


def test_export_says_which_are_updates(lite: Store, write_run: WriteRun) -> None:
    """Rows of the same layer and step, told apart by what they are of."""
    writer = write_run()
    writer.points("loss", [4], 1.0)
    writer.frame(4, {"a.w": np.ones(3)})
    writer.frame(4, {"a.w": np.array([0.0, 0.25])}, of="update")
    writer.commit()
    rows = [row for row in export_rows(newest(lite), kinds=["sketches"]) if row["kind"] == "sketch"]
    assert [(row["of"], row["n"], row["zeros"], row["exponents"]) for row in rows] == [
        ("grad", 3, 0, {"0": 3}),
        ("update", 2, 1, {"-2": 1}),
    ]


def test_a_run_that_loses_its_updates_is_unhealthy_until_they_arrive(lite: Store, write_run: WriteRun) -> None:
    """With the layer and the share of late; full precision, of which the agent tells nothing, never is."""
    writer = write_run()
    writer.facts(precision="BF16")
    steps = np.arange(400)
    writer.points("loss", steps, 1.0)
    writer.points("grad.norm", steps, 1.0)
    lost, kept = np.r_[np.zeros(90), np.ones(10)], np.ones(100)
    for step in range(0, 400, 10):
        writer.frame(step, {"a.w": np.ones(100), "b.w": np.ones(100)})
        writer.frame(step, {"a.w": lost, "b.w": kept}, of="update")
    writer.commit()
    assert judge(newest(lite)).word == "healthy"
    writer.event("updates_lost", 20, "warning", where=["a.w"], num_layers=1, shares=[0.95])
    writer.commit()
    health = judge(newest(lite))
    assert (health.word, health.severity) == ("unhealthy", "warning")
    (reason,) = health.reasons
    assert reason.startswith("90% of the updates of a.w are lost since step 20")
    writer.points("loss", np.arange(400, 4_000), 1.0)
    writer.points("grad.norm", np.arange(400, 4_000), 1.0)
    for step in range(400, 4_000, 100):
        writer.frame(step, {"a.w": np.ones(100)})
        writer.frame(step, {"a.w": kept}, of="update")
    writer.commit()
    health = judge(newest(lite))
    assert (health.word, health.severity) == ("healthy", "info")
    assert health.reasons == ["most updates of a.w were lost at step 20; it has recovered"]


def test_a_training_that_begins_anew_is_not_told_what_its_first_start_lost(lite: Store, write_run: WriteRun) -> None:
    """It may have other weights."""
    before = write_run()
    before.points("loss", np.arange(50), 1.0)
    before.frame(40, {"a.w": np.zeros(10)}, of="update")
    before.event("updates_lost", 40, "warning", where=["a.w"], num_layers=1, shares=[1.0])
    before.commit()
    anew = write_run(attempt=1)
    anew.points("loss", np.arange(50, 100), 1.0)
    anew.frame(60, {"a.w": np.zeros(10)}, of="update")
    anew.commit()
    health = judge(newest(lite))
    assert (health.word, health.reasons) == ("healthy", [])
