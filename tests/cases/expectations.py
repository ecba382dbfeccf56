"""What is particular to single cases and to their variations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope.sketch import Sketch

from tests.cases.mapping import EVENTS, Elsewhere
from tests.cases.recordings import Recording, zero_share

Printed = dict[str, Any]

RUN_OF = {("c08", "plain"): 0, ("c08", "fused"): 1}
"""What the oracle calls a run that is told apart by its number."""


def _only(runs: list[Recording]) -> Recording:
    (run,) = runs
    return run


def _steps(run: Recording, *kinds: str) -> list[int]:
    return [event.step for event in run.events(*kinds)]


def _nonfinite(layers: dict[str, Sketch]) -> dict[str, int]:
    return {name: int(sketch.nonfinite) for name, sketch in layers.items() if sketch.nonfinite}


def _partial_steps(runs: list[Recording]) -> list[int]:
    finder = EVENTS["partial_step"]
    assert not isinstance(finder, Elsewhere)
    return [found.step for found in finder(runs)]


def _c01(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert {event.attributes["class"] for event in run.events("skip")[2:]} == {"streak"}
    assert run.events("bad_streak")[0].attributes["origin"].startswith("forward")
    assert sorted(run.frames) == list(range(200))  # at every skipped step
    assert all(_nonfinite(frame.layers) == {"weight": 4, "bias": 1} for frame in run.frames.values())


def _c01_fused(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert _steps(run, "skip") == _steps(run, "loss_nonfinite") == [0, 1, 2, 3, 4, 5]
    assert {event.attributes["value"] for event in run.events("loss_nonfinite")} <= {"Infinity", "-Infinity"}
    assert set(run.values("opt.steps").values()) == {0.0}


def _c03(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert run.values("amp.scale")[39] == 2.0**-5
    assert run.frames[0].scale == 65536.0
    assert _nonfinite(run.frames[0].layers).keys() == {"weight", "bias"}
    assert not _nonfinite(run.frames[39].layers)


def _c05_linear_head(runs: list[Recording], printed: Printed) -> None:
    run = _only(runs)
    names = ["low.weight", "low.bias", "high.weight", "high.bias"]
    for step, zeros in enumerate(printed["zeros"]):
        layers = run.frames[step].layers
        assert [zero_share(layers[name]) for name in names] == pytest.approx(zeros, abs=1e-6)
    assert not run.events("layer_flushed")  # it never had a gradient to lose


def _c07(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert list(run.values("lr").values()) == pytest.approx([1e-6 * 0.5**step for step in range(10)])
    assert list(run.values("opt.steps").values()) == [0.0] * 7 + [1.0, 2.0, 3.0]


def _c08_unscaled(runs: list[Recording], printed: Printed) -> None:
    run = _only(runs)
    assert list(run.values("grad.norm").values()) == [float(norm) for norm in printed["norms"]]
    assert _steps(run, "skip") == [1]
    assert run.values("opt.steps") == {0: 1.0, 1: 1.0, 2: 2.0}
    assert {(frame.point, frame.clipped) for frame in run.frames.values()} == {("unscale", "no")}


def _c10_training(runs: list[Recording], printed: Printed) -> None:
    run = _only(runs)
    assert [float(run.frames[step].layers["weight"].norm) for step in (0, 1)] == pytest.approx(printed["unscaled"])
    assert 0.679 <= float(run.frames[0].layers["weight"].norm) <= 0.6805
    values = [value for column in run.recorded.points.values() for value in column.values()]
    assert not any(value == pytest.approx(naive, rel=1e-2) for value in values for naive in printed["naive"])


def _c12(runs: list[Recording], _printed: Printed) -> None:
    assert list(runs[-1].values("amp.scale").values()) == [4.0, 8.0, 16.0, 32.0]
    assert not any(run.events("skip", "update_missing") for run in runs)


def _c14(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert {name.split(".")[0] for name in run.recorded.facts["parameters"]["names"]} == {"G", "D"}
    assert _last_steps(run) == {"optimizer_G": 1.0, "optimizer_D": 0.0}
    assert _nonfinite(run.frames[0].layers).keys() == {"D.weight", "D.bias"}


def _last_steps(run: Recording) -> dict[str, float]:
    return {name: values[max(values)] for name, values in run.by_optimizer("opt.steps").items()}


def _c14_three(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert [(event.step, event.where) for event in run.events("skip")] == [(1, ["second"])]
    assert _last_steps(run) == {"first": 3.0, "second": 2.0, "third": 3.0}
    assert _partial_steps(runs) == [1]


def _c17(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert not run.events("skip", "nonfinite_applied", "loss_nonfinite", "agent_degraded")


def _c20(runs: list[Recording], _printed: Printed) -> None:
    assert runs[0].recorded.facts["precision"] == "BF16-AMP"
    assert [event.attributes["dtype"] for event in runs[1].events("half_precision_parameters")] == ["bfloat16"]


def _c21(runs: list[Recording], _printed: Printed) -> None:
    without, with_anomaly = runs
    assert list(without.values("opt.steps").values()) == [0.0] * 10 + [float(n) for n in range(1, 11)]
    assert not with_anomaly.events("skip")


def _c23(runs: list[Recording], printed: Printed) -> None:
    run = _only(runs)
    (event,) = run.events("loss_nonfinite")
    assert (event.step, event.attributes["caught"]) == (5, True)
    losses = [value if value == value else "nan" for value in run.values("loss").values()]
    assert [round(value, 3) if value != "nan" else value for value in losses] == printed["train_loss"]
    assert [step for step, frame in run.frames.items() if _nonfinite(frame.layers)] == [5]


def _c33_training(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    (event,) = run.events("nonfinite_applied")
    assert (event.step, event.where, event.severity) == (2, ["1.bias"], "critical")
    assert _nonfinite(run.frames[2].layers) == {"1.bias": 1}
    assert int(run.frames[2].layers["1.bias"].pos_inf) == 1
    assert {(frame.point, frame.clipped) for frame in run.frames.values()} == {("clip", "no")}


def _c43(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert [event.attributes["num_nan"] for event in run.events("input_nonfinite")] == [1, 1]
    assert _steps(run, "skip") == [4, 12]
    assert {step for step, count in run.values("input.nonfinite").items() if count} == {4, 12}


def _c43_nested(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    (event,) = run.events("input_nonfinite")
    assert (event.step, event.severity) == (0, "critical")
    assert [event.attributes[name] for name in ("num_nan", "num_inf", "first_row")] == [1, 2, 6]
    assert _steps(run, "skip") == [0]


def _c45_training(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert next((event.step, event.severity) for event in run.events("nonfinite_applied")) == (0, "critical")
    assert not [event for event in run.events("loss_nonfinite") if event.step == 0]
    (sketch,) = run.frames[0].layers.values()
    assert int(sketch.nan) == 4


def _c53_ranks(runs: list[Recording], printed: Printed) -> None:
    """All skip alike; the loss and the gradient before the reduction say where it began."""
    by_rank = {run.recorded.info.rank: run for run in runs}
    assert len({run.recorded.run_id for run in runs}) == 1
    assert sorted(by_rank) == [0, 1]
    assert [_steps(run, "skip") for run in runs] == [[2], [2]]
    assert not by_rank[0].events("loss_nonfinite", "rank_origin")
    (loss,) = by_rank[1].events("loss_nonfinite")
    (origin,) = by_rank[1].events("rank_origin")
    assert loss.step == origin.step == 2
    assert origin.where == ["weight"]
    assert by_rank[0].values("amp.scale_next") == dict(enumerate(printed["scales"]))
    assert printed["scales"][-1] == 128.0


def _c55_training(runs: list[Recording], printed: Printed) -> None:
    run = _only(runs)
    bad, died = printed["bad_from"], printed["died_at_step"]
    assert _steps(run, "skip") == list(range(bad, died + 1))
    (streak,) = run.events("bad_streak")
    assert streak.step - bad <= 4
    assert died - streak.step >= 13
    scales = list(run.values("amp.scale").values())
    assert scales == [65536.0] * (bad + 2) + [2.0**exponent for exponent in range(15, -1, -1)]


def _c77_ranks(runs: list[Recording], printed: Printed) -> None:
    assert sorted(run.recorded.info.rank for run in runs) == [0, 1]
    for step in range(3):
        norm = np.hypot(*(run.values("grad.norm")[step] for run in runs))
        parts = [run.frames[step].layers["weight"] for run in runs]
        assert norm == pytest.approx(printed["norm"]) == 8.0
        assert sum(int(part.n) for part in parts) == 16


def _c59_training(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)
    assert sorted(run.frames) == [0, 1, 2, 3]
    assert all(len(frame.layers) == 6 for frame in run.frames.values())


def _c60_training(runs: list[Recording], _printed: Printed) -> None:
    run = _only(runs)  # the copies that train beside it are nobody's run
    assert sorted(run.values("opt.steps")) == [0, 1, 2]


def _c61_training(runs: list[Recording], _printed: Printed) -> None:
    assert len(runs) == 3
    for run in runs:
        assert sorted(run.frames) == sorted(run.values("grad.norm")) == [0, 1, 2, 3]
        assert set(run.frames[0].layers) == {"0.weight", "0.bias", "2.weight", "2.bias"}


def _c64_training(runs: list[Recording], printed: Printed) -> None:
    run = _only(runs)
    assert list(run.values("grad.norm").values()) == pytest.approx(printed["norms"], rel=1e-6)
    for step, norm in enumerate(printed["norms"]):
        sumsq = sum(float(sketch.sumsq) for sketch in run.frames[step].layers.values())
        assert np.sqrt(sumsq) == pytest.approx(norm, rel=1e-6)


def _c76_training(runs: list[Recording], _printed: Printed) -> None:
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert [run.recorded.facts["parameters"]["names"] for run in runs] == [names] * 5
    assert [sorted(run.frames) for run in runs] == [[0, 1]] * 5
    assert all(set(frame.layers) == set(names) for run in runs for frame in run.frames.values())


def _c82_training(runs: list[Recording], printed: Printed) -> None:
    run = _only(runs)
    norms = [np.hypot(*pair) for pair in printed["norms"]]
    assert list(run.values("grad.norm").values()) == pytest.approx(norms, rel=1e-6)
    layers = run.frames[0].layers
    assert set(layers) == {"embedding.weight", "phases"}
    assert (int(layers["embedding.weight"].n), int(layers["embedding.weight"].zeros)) == (40, 32)
    assert [float(layers[name].norm) for name in ("embedding.weight", "phases")] == pytest.approx(printed["norms"][0])


def _c84_training(runs: list[Recording], _printed: Printed) -> None:
    assert [sorted(run.values("grad.norm")) for run in runs] == [[0, 1, 2]] * 3
    assert all(set(run.frames[0].layers) == {"0.weight", "0.bias"} for run in runs)


MORE: dict[str, Callable[[list[Recording], Printed], None]] = {
    name.removeprefix("_"): check for name, check in globals().items() if name.startswith("_c") and callable(check)
}
