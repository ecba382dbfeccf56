"""Comparisons: which runs they take, how long they are kept, who is a repeat of whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from halfscope_server.compare.comparison import Comparison, Comparisons
from halfscope_server.compare.types import Options
from halfscope_server.errors import InvalidRequest, NotFound, RunDeleted
from halfscope_server.query import Views
from halfscope_server.store.store import Store

WriteRun = Callable[..., Any]


def test_a_comparison_is_kept_until_a_member_changes(lite: Store, write_run: WriteRun) -> None:
    """Same runs and options, same object; one more point and it is another, of which only what changed is new."""
    comparisons = Comparisons(Views(lite))
    writers = {run: write_run(run) for run in ("run1", "run2", "run3")}
    for writer in writers.values():
        writer.points("loss", range(5), 1.0)
        writer.commit()
    first = comparisons.get(["run1", "run2", "run3"])
    assert comparisons.get(["run1", "run2", "run3"]) is first
    assert comparisons.get(["run2", "run1", "run3"]) is not first
    assert comparisons.get(["run1", "run2", "run3"], Options(align="time")) is not first
    assert [first.memo_pair(at, "kept", lambda at=at: at) for at in (1, 2)] == [1, 2]
    writers["run3"].points("loss", [5], 1.0)
    writers["run3"].commit()
    second = comparisons.get(["run1", "run2", "run3"])
    assert second is not first
    assert [second.memo_pair(at, "kept", lambda: "anew") for at in (1, 2)] == [1, "anew"]
    assert second.key == "run1,run2,run3"


def test_what_cannot_be_compared_is_refused_in_words(lite: Store, write_run: WriteRun) -> None:
    """One run, nine, one twice, one that is gone, one that never was."""
    comparisons = Comparisons(Views(lite))
    for run in ("run1", "run2"):
        writer = write_run(run, name=f"name of {run}")
        writer.points("loss", range(5), 1.0)
        writer.commit()
    for given, words in (
        ([], "no run was given"),
        (["run1"], "only run run1 was given"),
        (["run1", "run1"], "run run1 was given twice"),
        ([f"r{at}" for at in range(9)], "9 runs were given; at most 8"),
    ):
        with pytest.raises(InvalidRequest, match=words):
            comparisons.get(given)
    with pytest.raises(NotFound, match="there is no run other here to compare"):
        comparisons.get(["run1", "other"])
    lite.delete_run("run2", now_us=1)
    with pytest.raises(RunDeleted, match="name of run2"):
        comparisons.get(["run1", "run2"])


def test_repeats_differ_in_nothing_but_their_seed(lite: Store, write_run: WriteRun) -> None:
    """Another learning rate, precision or key of the configuration is another group; another name, folder or seed is
    not, and what tells runs apart is told."""
    chosen: dict[str, dict[str, Any]] = {
        "base": {},
        "seed": {"seed": 7, "name": "second", "output_dir": "/b"},
        "rate": {"optim": {"lr": 2e-3}},
        "width": {"width": 32},
        "half": {"amp": True},
    }
    usual: dict[str, Any] = {"seed": 0, "name": "first", "output_dir": "/a", "optim": {"lr": 1e-3}, "width": 64}
    for run, changed in chosen.items():
        config = {**usual, **changed}
        writer = write_run(run, config=config)
        precision = "FP16-AMP" if run == "half" else "FP32"
        writer.facts(precision=precision, seed=config["seed"], scalers=[])
        writer.points("loss", range(5), 1.0)
        writer.points("lr", [0], config["optim"]["lr"], kind="state")
        writer.commit()
    views = [Views(lite).get(run) for run in chosen]
    found = Comparison([view for view in views if view is not None])
    assert [item.group for item in found.members] == [0, 0, 1, 2, 3]
    assert "".join(item.letter for item in found.members) == "ABCDE"
    assert found.members[1].config == {
        "amp": "–", "name": "second", "optim.lr": "0.001", "output_dir": "/b", "seed": "7", "width": "64"
    }  # fmt: skip


def test_runs_of_unknown_precision_are_no_repeats(lite: Store, write_run: WriteRun) -> None:
    """It may be the very thing they differ in."""
    for run in ("run1", "run2"):
        writer = write_run(run)
        writer.points("loss", range(5), 1.0)
        writer.commit()
    views = [Views(lite).get(run) for run in ("run1", "run2")]
    assert [item.group for item in Comparison([view for view in views if view]).members] == [0, 1]


def test_a_report_has_everything_by_member(lite: Store, write_run: WriteRun) -> None:
    """Of two runs that just began, too."""
    for run in ("run1", "run2"):
        writer = write_run(run)
        writer.points("loss", range(5), 1.0)
        writer.points("amp.scale", range(5), 1.0, kind="state")
        writer.points("val/loss", range(5), 1.0)
        writer.commit()
    views = [Views(lite).get(run) for run in ("run1", "run2")]
    report = Comparison([view for view in views if view]).report
    for part in (report.members, report.quality, report.cost, report.stability, report.numerics):
        assert [item.run for item in part] == ["run1", "run2"]
    assert [item.run for item in report.verdicts] == ["run2"]
    assert report.metrics == ["loss", "val/loss"]
    assert report.is_live
