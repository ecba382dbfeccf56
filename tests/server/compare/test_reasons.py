"""Why a member is worse: the right mechanism for each bad training, and none for good ones."""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halfscope_server.compare import reasons
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.numerics import RESPECTS
from halfscope_server.compare.reasons.scale_collapsed import FALL_LOG2, HELD_STEPS
from halfscope_server.compare.types import Reason
from halfscope_server.query import Views
from halfscope_server.store.store import Store

from tests.helpers.compared_trainings import NUM_OUTLIERS, RECIPES, TROUBLE_STEP
from tests.helpers.comparing import Recordings
from tests.server.conftest import RunWriter

WriteRun = Callable[..., RunWriter]


def of_pair(recordings: Recordings, *names: str) -> list[Reason]:
    return reasons.find(Comparison(recordings.views(*names)), 1)


def of_runs(store: Store, *run_ids: str) -> list[Reason]:
    views = [Views(store).get(run_id) for run_id in run_ids]
    return reasons.find(Comparison([view for view in views if view is not None]), 1)


def test_every_file_is_a_mechanism_of_that_name() -> None:
    """Found by scanning; ids are those of the files."""
    files = {module.name for module in pkgutil.iter_modules(reasons.__path__)} - {"base"}
    assert {mechanism.id for mechanism in reasons.mechanisms()} == files
    for name in files:
        assert importlib.import_module(f"halfscope_server.compare.reasons.{name}").REASON.id == name


def test_the_page_lists_every_reason_and_respect() -> None:
    """docs/compare.md has a row for each, and for no other."""
    text = (Path(__file__).resolve().parents[3] / "docs/compare.md").read_text("utf-8")
    numerics_part = text.split("## Numerics")[1].split("## Reasons")[0]
    reasons_part = text.split("## Reasons")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", reasons_part, re.M)) == {item.id for item in reasons.mechanisms()}
    assert set(re.findall(r"^\| `(\w+)` \|", numerics_part, re.M)) == set(RESPECTS)


# ---- real trainings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("baseline", "member"),
    [
        ("fp32", "fp32_again"),
        ("fp32", "fp16"),
        ("fp32", "bf16_amp"),
        ("fp32", "fp32_seed1"),
        ("fp32_seed1", "fp16"),
        ("fp32", "fp32_batch32"),
        ("fp16", "fp32"),
        ("fp16_collapsed", "fp32_outliers"),
        ("bf16_lost_updates", "fp32_small_steps"),
        ("fp16_underflow", "fp16_underflow"),
    ],
)
def test_nothing_speaks_against_a_healthy_training(recordings: Recordings, baseline: str, member: str) -> None:
    """Nor against one that does what its baseline does, or is the better of the two."""
    views = recordings.views(baseline, member)
    if baseline == member:
        views = views[0], views[0].with_row(views[0].row)
    assert reasons.find(Comparison(views), 1) == []


@pytest.mark.parametrize(("member", "step"), [("fp16_underflow", TROUBLE_STEP), ("fp16_underflow_always", 0)])
def test_underflow_is_named_with_layer_step_and_a_scale_that_would_do(
    recordings: Recordings, member: str, step: int
) -> None:
    """A scale that was set by hand has not collapsed. The scale that is advised keeps 99% by the journal's sketches."""
    (reason,) = of_pair(recordings, "fp32", member)
    assert (reason.id, reason.layer, reason.certainty) == ("underflow", "narrow.weight", "measured")
    assert reason.step is not None
    assert abs(reason.step - step) <= 10
    assert reason.text.startswith("narrow lost ")
    assert "below FP16's floor at loss scale 2⁻⁵ from step" in reason.text
    assert "a loss scale of at least 2³ keeps 99% of them" in reason.advice
    view = recordings.view("fp32")
    steps = view.store.frame_sketches(view.run_id, [view.layers["narrow.weight"].layer_id])
    tail = steps.sketches[-max(3, len(steps.step) // 10) :].merged()
    shares = [float(tail.would_flush_share(2.0**power)) for power in (2, 3)]
    assert shares[1] <= 0.01 < shares[0]


def test_a_collapsed_scale_comes_before_what_follows_from_it(recordings: Recordings) -> None:
    """The layer that overflowed and the step of the first skip; then what became zero, then the skips."""
    found = of_pair(recordings, "fp32_outliers", "fp16_collapsed")
    assert [reason.id for reason in found] == ["scale_collapsed", "underflow", "skips"]
    scale, underflow, skips = found
    assert (scale.step, scale.layer, scale.certainty) == (TROUBLE_STEP, "stem.weight", "measured")
    assert (
        f"fell from 2¹⁶ to 2⁻{str(NUM_OUTLIERS - 16).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"
        in scale.text
    )
    assert underflow.step is not None
    assert underflow.step > TROUBLE_STEP
    assert (skips.step, skips.layer) == (TROUBLE_STEP, "stem.weight")
    assert skips.text.startswith(f"{NUM_OUTLIERS} of {RECIPES['fp16_collapsed'].num_steps} steps")


def test_nan_that_was_applied_is_named_with_where_it_came_in(recordings: Recordings) -> None:
    """And nothing else: what follows needs no other reason."""
    (reason,) = of_pair(recordings, "fp32_outliers", "fp16_poisoned")
    assert (reason.id, reason.step, reason.layer) == ("nonfinite_applied", TROUBLE_STEP, "stem.weight")
    assert reason.certainty == "measured"


def test_updates_too_small_for_bf16_weights_are_named(recordings: Recordings) -> None:
    """From the first step on, in all layers, measured on the weights."""
    (reason,) = of_pair(recordings, "fp32_small_steps", "bf16_lost_updates")
    assert (reason.id, reason.certainty) == ("lost_updates", "measured")
    assert reason.step is not None
    assert reason.step <= 10
    assert reason.text.endswith("as 7 other layers did")


# ---- made runs -------------------------------------------------------------------------------


def scaled(write_run: WriteRun, run_id: str, scale_log2: Any, skips: Any = ()) -> RunWriter:
    writer = write_run(run_id, name=run_id)
    writer.points("loss", range(len(scale_log2)), 1.0)
    writer.points("amp.scale", range(len(scale_log2)), 2.0 ** np.asarray(scale_log2, float))
    writer.facts(precision="FP16-AMP")
    for step in skips:
        writer.skip(step, "streak")
    return writer


def test_scales_that_have_not_collapsed(lite: Store, write_run: WriteRun) -> None:
    """Settling from the start, set by hand, following gradients that grow, fallen and come back, low for ever."""
    write_run("base").commit()
    num, fell = 4 * HELD_STEPS, 2 * HELD_STEPS
    step = np.arange(num)
    settles = np.maximum(16 - step, 1)
    by_hand = np.where(step < fell, 16, -5)
    follows = np.where(step < fell, 16, np.maximum(16 - (step - fell), 6))
    back = np.where(step < fell, 16, np.where(step < fell + 20, 2, 15))
    low = np.full(num, -5)
    little = np.where(step < fell, 5, np.maximum(5 - (step - fell), 5 - FALL_LOG2 + 1))
    for name, scale, skips in (
        ("settles", settles, range(15)),
        ("by_hand", by_hand, ()),
        ("follows", follows, range(fell, fell + 10)),
        ("back", back, range(fell, fell + 14)),
        ("low", low, ()),
        ("little", little, range(fell, fell + 5)),
    ):
        scaled(write_run, name, scale, skips).commit()
        assert "scale_collapsed" not in {reason.id for reason in of_runs(lite, "base", name)}, name


@pytest.mark.parametrize("length", [400, 40_000])
def test_a_collapse_is_dated_also_in_long_runs(lite: Store, write_run: WriteRun, length: int) -> None:
    """Of a long run summaries of 64 steps are read, and its skips tell which of them."""
    fell = length * 3 // 4
    step = np.arange(length)
    scale = np.where(step <= fell, 16.0, np.maximum(16.0 - (step - fell), -140.0))
    write_run("base").commit()
    scaled(write_run, "run", scale, range(fell, min(length, fell + 100))).commit()
    found = next(reason for reason in of_runs(lite, "base", "run") if reason.id == "scale_collapsed")
    assert found.step == fell


def test_skips_count_beyond_the_baselines_and_without_healthy_ones(lite: Store, write_run: WriteRun) -> None:
    """One in fifty against one in a thousand; settling and probes are none; against the same share nothing is said."""
    for name, skips, kind in (
        ("few", [500], "single"),
        ("many", range(100, 1000, 50), "single"),
        ("as_many", range(110, 1000, 50), "single"),
        ("probes", range(100, 1000, 50), "probe"),
    ):
        writer = write_run(name)
        writer.points("loss", range(1000), 1.0)
        for step in skips:
            writer.skip(step, kind)
        writer.commit()
    (reason,) = of_runs(lite, "few", "many")
    assert (reason.id, reason.step, reason.certainty) == ("skips", 100, "likely")
    assert reason.text.startswith("18 of 1,000 steps (1.8%) were skipped, up to 1 in a row, from step 100 on")
    assert of_runs(lite, "many", "as_many") == []
    assert of_runs(lite, "few", "probes") == []


def test_underflow_that_no_scale_mends_is_said_so(lite: Store, write_run: WriteRun) -> None:
    """Where another layer overflows at the scale that this one needs."""
    rng = np.random.default_rng(0)
    sizes = {"large.weight": 2.0, "small.weight": -44.0}
    for name, scale in (("fp32", math.nan), ("fp16", 2.0**12)):
        writer = write_run(name)
        writer.points("loss", range(200), 1.0)
        writer.facts(precision="FP32" if math.isnan(scale) else "FP16-AMP")
        for step in range(0, 200, 10):
            values = {layer: rng.normal(0, 2.0**size, 2000) for layer, size in sizes.items()}
            if not math.isnan(scale):
                near = {layer: np.clip(v * scale, -6e4, 6e4).astype(np.float16) for layer, v in values.items()}
                values = {layer: v.astype(float) / scale for layer, v in near.items()}
            writer.frame(step, values, scale)
        writer.commit()
    (reason,) = of_runs(lite, "fp32", "fp16")
    assert (reason.id, reason.layer, reason.step) == ("underflow", "small.weight", 0)
    assert reason.advice.endswith("no single scale serves this model. Keep small outside autocast.")


def test_of_two_scalers_the_one_that_collapsed_is_seen(lite: Store, write_run: WriteRun) -> None:
    """Also where the other one is declared first and holds its level."""
    write_run("base").commit()
    step = np.arange(400)
    writer = scaled(write_run, "run", np.full(400, 16.0), range(300, 330))
    falling = 2.0 ** np.where(step <= 300, 16.0, np.maximum(16.0 - (step - 300), -14.0))
    writer.columns(step, {writer.series("amp.scale", scaler="critic"): falling})
    writer.commit()
    found = next(reason for reason in of_runs(lite, "base", "run") if reason.id == "scale_collapsed")
    assert found.step == 300


@pytest.mark.parametrize(
    ("optimizer", "certainty"),
    [
        (None, ["measured"]),
        ({"class": "AdamW", "groups": [{"lr": 1e-3}]}, ["measured"]),
        ({"class": "TheirAdamW", "groups": [{"lr": 1e-3}]}, ["likely"]),
        ({"class": "AdamW", "groups": [{"kahan_sum": True}]}, []),
        ({"class": "AdamW", "groups": [{"bf16_stochastic_round": False}]}, ["measured"]),
    ],
)
def test_updates_that_an_optimizer_makes_up_for_are_not_lost(
    lite: Store, write_run: WriteRun, optimizer: Any, certainty: list[str]
) -> None:
    """Nine of ten weights stay as they are: lost where rounding is plain, not known where the optimizer is not."""
    rng = np.random.default_rng(0)
    for name, kept in (("fp32", 1.0), ("bf16", 0.1)):
        writer = write_run(name)
        writer.points("loss", range(200), 1.0)
        facts = {} if optimizer is None else {"optimizers": [optimizer]}
        writer.facts(precision=name.upper(), **facts)
        for step in range(0, 200, 10):
            gradient = rng.normal(size=1000)
            writer.frame(step, {"layer.weight": gradient})
            writer.frame(step, {"layer.weight": gradient * (rng.random(1000) < kept)}, of="update")
        writer.commit()
    assert [reason.certainty for reason in of_runs(lite, "fp32", "bf16") if reason.id == "lost_updates"] == certainty
