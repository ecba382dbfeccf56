"""Where layers of real trainings part, against what is known of them and against their journals by other means."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from halfscope.record.layout import find_streams
from halfscope.record.reader import JournalReader
from halfscope.sketch import Sketch
from halfscope.wire.codec import decode_record
from halfscope.wire.messages import Layers, Sketches
from halfscope_server.compare import numerics
from halfscope_server.compare.comparison import Comparison, Comparisons
from halfscope_server.compare.types import LayerDivergence, Numerics, Options
from halfscope_server.query import Views
from halfscope_server.store.store import Store
from numpy.typing import NDArray
from scipy.stats import wasserstein_distance

from tests.cases.recordings import Frame, read
from tests.helpers.compared_trainings import TROUBLE_STEP
from tests.helpers.comparing import Recordings
from tests.server.conftest import RunWriter

WriteRun = Callable[..., RunWriter]


def parted(found: Numerics) -> dict[str, tuple[str, int | None]]:
    """Layers that parted: in which respect, and from which step on."""
    return {layer.layer: (layer.what, layer.first_step) for layer in found.layers if layer.what}


def of_pair(recordings: Recordings, *names: str) -> Numerics:
    return numerics.diverge(Comparison(recordings.views(*names)))[1]


# ---- real trainings --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("baseline", "member"),
    [
        ("fp32", "fp32_again"),
        ("fp32", "fp16"),
        ("fp32", "bf16_amp"),
        ("fp32", "fp32_seed1"),
        ("fp32_seed2", "fp32_seed3"),
        ("fp32_seed1", "fp16"),
        ("fp32", "fp32_other_order"),
        ("fp32", "fp32_seldom"),
        ("fp32", "fp32_accumulated"),
        ("fp32_batch32", "fp32"),
    ],
)
def test_healthy_trainings_part_in_no_layer(recordings: Recordings, baseline: str, member: str) -> None:
    """Other precisions, seeds, orders, batches, intervals; with room to what is tolerated."""
    found = of_pair(recordings, baseline, member)
    assert (found.reason, found.num_common) == ("", 8)
    assert parted(found) == {}
    assert (found.first_step, found.first_layer) == (None, "")
    assert found.layers[0].score < 0.8


@pytest.mark.parametrize(("member", "step"), [("fp16_underflow", TROUBLE_STEP), ("fp16_underflow_always", 0)])
def test_underflow_is_found_in_its_layer_and_step(recordings: Recordings, member: str, step: int) -> None:
    """The narrow layer alone, in zeros, within one interval; what the baseline's gradients foretold is beside it."""
    found = of_pair(recordings, "fp32", member)
    assert set(parted(found)) == {"narrow.weight", "narrow.bias"}
    assert {what for what, _ in parted(found).values()} == {"zeros"}
    assert found.first_step is not None
    assert abs(found.first_step - step) <= 10
    assert found.first_layer.startswith("narrow.")
    worst = found.layers[0]
    assert worst.layer == "narrow.weight"
    assert worst.baseline_zero_share == 0.0
    assert worst.zero_share is not None
    assert worst.zero_share > 0.5
    assert worst.underflow_share == pytest.approx(worst.zero_share)
    assert worst.would_flush_share == pytest.approx(worst.zero_share, abs=0.25)
    assert worst.distance_bits is not None
    assert worst.noise_bits is not None
    assert worst.distance_bits > 5 * worst.noise_bits


def test_other_seeds_do_not_hide_underflow(recordings: Recordings) -> None:
    """Against a baseline with other weights and batches it is the same layer and step."""
    found = of_pair(recordings, "fp32_seed2", "fp16_underflow")
    assert found.first_layer.startswith("narrow.")
    assert found.first_step == TROUBLE_STEP


def test_nan_that_was_applied_parts_all_from_where_it_began(recordings: Recordings) -> None:
    """In the layer that saw the outlier first; a scale that withheld the same batches parts in zeros instead."""
    poisoned = of_pair(recordings, "fp32_outliers", "fp16_poisoned")
    assert (poisoned.first_step, poisoned.first_layer) == (TROUBLE_STEP, "stem.weight")
    assert {what for what, _ in parted(poisoned).values()} == {"nonfinite"}
    assert len(parted(poisoned)) == 8
    collapsed = of_pair(recordings, "fp32_outliers", "fp16_collapsed")
    assert len(parted(collapsed)) == 8
    assert {what for what, _ in parted(collapsed).values()} == {"zeros"}
    assert collapsed.first_step is not None
    assert TROUBLE_STEP <= collapsed.first_step <= TROUBLE_STEP + 50


# ---- numbers, by other means -----------------------------------------------------------------


def added(frames: Sequence[Frame], layer: str) -> dict[str, Any]:
    """A layer over some frames: exponents of all its nonzero elements one by one, zeros, elements, squares."""
    sketches = [frame.layers[layer] for frame in frames]
    exponents = np.concatenate([elements(sketch) for sketch in sketches])
    return {
        "exponents": exponents,
        "zeros": sum(int(sketch.zeros) for sketch in sketches),
        "n": sum(int(sketch.n) for sketch in sketches),
        "sumsq": sum(float(sketch.sumsq) for sketch in sketches),
        "absmax": [float(sketch.absmax) for sketch in sketches],
    }


def elements(sketch: Sketch) -> NDArray[np.int64]:
    return np.repeat(sketch.lowest + np.arange(sketch.counts.size), sketch.counts)


def test_every_number_is_that_of_the_journals(recordings: Recordings) -> None:
    """Read from the agents' own records and added up here; the distance is scipy's."""
    names = ("fp32", "fp16_underflow")
    one, two = (read(recordings.journal(name))[0].frames for name in names)
    steps = sorted(one.keys() & two.keys())
    tail = steps[-max(3, len(steps) // 10) :]
    found = {layer.layer: layer for layer in of_pair(recordings, *names).layers}
    for layer in ("narrow.weight", "stem.weight", "head.weight"):
        a, b = (added([frames[step] for step in tail], layer) for frames in (one, two))
        item = found[layer]
        assert item.zero_share == b["zeros"] / b["n"]
        assert item.baseline_zero_share == a["zeros"] / a["n"]
        assert item.norm_ratio == pytest.approx(math.sqrt(b["sumsq"] / a["sumsq"]), rel=1e-6)
        # Below 4 epsilons of the largest element sizes are not told apart.
        largest = np.minimum(a["absmax"], b["absmax"])
        above = np.median(np.floor(np.log2(largest * 4 * 2.0**-10)))
        expected = wasserstein_distance(np.maximum(a["exponents"], above), np.maximum(b["exponents"], above))
        assert item.distance_bits == pytest.approx(expected)
        scales = [two[step].scale for step in tail]
        assert set(scales) == {2.0**-5}
        assert item.would_flush_share == pytest.approx((a["exponents"] - 5 < -25).mean())


def test_lost_updates_are_those_of_the_journals(recordings: Recordings) -> None:
    """Of both runs, from the agents' own records; the first step is the first that was looked at."""
    names = ("fp32_small_steps", "bf16_lost_updates")
    found = of_pair(recordings, *names)
    one, two = (updates(recordings, name) for name in names)
    steps = sorted(one.keys() & two.keys())
    tail = steps[-max(3, len(steps) // 10) :]
    for layer in found.layers:
        for share, counts in ((layer.baseline_lost_update_share, one), (layer.lost_update_share, two)):
            zeros, n = (sum(counts[step][layer.layer][at] for step in tail) for at in (0, 1))
            assert share == zeros / n
        assert (layer.what, layer.first_step) == ("updates", steps[0])


def updates(recordings: Recordings, name: str) -> dict[int, dict[str, tuple[int, int]]]:
    """Lost and all updates by step and layer."""
    (place,) = find_streams(recordings.journal(name))
    records = [decode_record(entry.payload) for entry in JournalReader(place).read(final=True)]
    names = {layer.lid: layer.name for record in records if isinstance(record, Layers) for layer in record.layers}
    found: dict[int, dict[str, tuple[int, int]]] = {}
    for record in records:
        if isinstance(record, Sketches) and record.of == "update":
            counts = np.frombuffer(record.counts, "<i8").reshape(-1, 5)
            for lid, (n, zeros, *_) in zip(np.frombuffer(record.lids, "<u4").tolist(), counts.tolist(), strict=True):
                found.setdefault(record.step, {})[names[lid]] = (zeros, n)
    return found


def test_what_lies_below_repeats_is_noise(recordings: Recordings) -> None:
    """Other seeds of the baseline are among the runs: their distance stands beside each layer's, and raises what is
    tolerated."""
    alone = of_pair(recordings, "fp32", "fp16")
    repeats = Comparison(recordings.views("fp32", "fp16", "fp32_seed1", "fp32_seed2"))
    assert [member.group for member in repeats.members] == [0, 1, 0, 0]
    among = numerics.diverge(repeats)
    pairs = [of_pair(recordings, *pair) for pair in (("fp32", "fp32_seed1"), ("fp32", "fp32_seed2"))]
    pairs.append(of_pair(recordings, "fp32_seed1", "fp32_seed2"))
    for layer in among[1].layers:
        known = [bits(pair, layer.layer) for pair in pairs]
        assert layer.noise_bits == pytest.approx(max(known))
        assert layer.score <= next(item.score for item in alone.layers if item.layer == layer.layer)
    assert parted(among[1]) == {}


def bits(found: Numerics, name: str) -> float:
    (layer,) = [layer for layer in found.layers if layer.layer == name]
    assert layer.distance_bits is not None
    return layer.distance_bits


# ---- made runs -------------------------------------------------------------------------------


def spread(seed: int, centre: float, size: int = 2000) -> NDArray[np.float32]:
    """Log-normal magnitudes around 2^centre."""
    rng = np.random.default_rng(seed)
    return (2.0 ** rng.normal(centre, 1.5, size) * rng.choice([-1, 1], size)).astype(np.float32)


def written(write_run: WriteRun, run_id: str, precision: str = "FP32") -> RunWriter:
    writer = write_run(run_id, name=run_id)
    writer.points("loss", range(400), 1.0)
    writer.facts(precision=precision)
    return writer


def compared(store: Store, *run_ids: str, options: Options | None = None) -> Numerics:
    views = [Views(store).get(run_id) for run_id in run_ids]
    return numerics.diverge(Comparison([view for view in views if view is not None], options))[1]


def layer_of(found: Numerics, name: str) -> LayerDivergence:
    return next(layer for layer in found.layers if layer.layer == name)


def test_a_factor_parts_in_norm_or_distance_from_its_step_on(lite: Store, write_run: WriteRun) -> None:
    """Eight times as large from step 200 on, under another wrapper's names; its neighbour stays; ranked behind it."""
    for run_id, prefix in (("plain", ""), ("wrapped", "_orig_mod.module.")):
        writer = written(write_run, run_id)
        for step in range(0, 400, 10):
            factor = 8.0 if prefix and step >= 200 else 1.0
            seed = step + (1 if prefix else 0)
            layers = {
                "a.weight": spread(seed, -10),
                "b.weight": spread(seed, -10) * factor,
                "c.weight": spread(seed, -9),
            }
            writer.frame(step, {prefix + name: values for name, values in layers.items()})
        writer.commit()
    found = compared(lite, "plain", "wrapped")
    assert parted(found) == {"_orig_mod.module.b.weight": ("distance", 200)}
    assert (found.num_common, found.only_baseline, found.only_member) == (3, [], [])
    assert (found.first_step, found.first_layer, found.interval, found.num_frames) == (
        200, "_orig_mod.module.b.weight", 10, 40,
    )  # fmt: skip
    assert found.layers[0].distance_bits == pytest.approx(3.0, abs=0.15)
    assert found.layers[0].norm_ratio == pytest.approx(8.0, rel=0.2)


def test_the_last_in_forward_order_is_first_of_those_that_part_together(lite: Store, write_run: WriteRun) -> None:
    """Its gradient comes first."""
    for run_id in ("one", "two"):
        writer = written(write_run, run_id)
        for step in range(0, 400, 10):
            gone = run_id == "two" and step >= 120
            values = {name: spread(step, -10) * (0 if gone and name != "d" else 1) for name in "abcd"}
            writer.frame(step, values)
        writer.commit()
    found = compared(lite, "one", "two")
    assert parted(found) == dict.fromkeys("abc", ("zeros", 120))
    assert (found.first_step, found.first_layer) == (120, "c")


def test_gradients_that_are_zero_but_for_rounding_part_nothing(lite: Store, write_run: WriteRun) -> None:
    """A bias in front of a normalisation: noise at 2^-30 in FP32 and 2^-21 in FP16, far below its weight's gradient.
    Alone in its module, or as large as its weight's, it would have parted."""
    for run_id, precision, noise in (("fp32", "FP32", -30), ("fp16", "FP16-AMP", -21)):
        writer = written(write_run, run_id, precision)
        for step in range(0, 400, 10):
            layers = {
                "conv.weight": spread(step, -9),
                "conv.bias": spread(step, noise),
                "alone.bias": spread(step, noise),
            }
            writer.frame(step, layers, math.nan if precision == "FP32" else 65536.0)
        writer.commit()
    found = compared(lite, "fp32", "fp16")
    assert parted(found) == {"alone.bias": ("distance", 0)}
    assert layer_of(found, "conv.bias").distance_bits == 0.0


def test_a_skipped_step_at_the_end_is_no_divergence(lite: Store, write_run: WriteRun) -> None:
    """A probe of the scaler leaves one frame with Inf; three in a row, or one that was applied, are more than that."""
    baseline = written(write_run, "baseline")
    runs = {"probe": 1, "streak": 3, "applied": 1}
    members = {name: written(write_run, name, "FP16-AMP") for name in runs}
    for step in range(0, 400, 10):
        values = spread(step, -10)
        baseline.frame(step, {"w": values})
        for name, writer in members.items():
            bad = step >= 400 - 10 * runs[name]
            writer.frame(step, {"w": np.where(np.arange(2000) < (5 if bad else 0), np.inf, values)}, 65536.0)
            if bad and name != "applied":
                writer.skip(step, "probe" if name == "probe" else "streak")
    for writer in (baseline, *members.values()):
        writer.commit()
    assert parted(compared(lite, "baseline", "probe")) == {}
    assert parted(compared(lite, "baseline", "streak")) == {"w": ("nonfinite", 370)}
    assert parted(compared(lite, "baseline", "applied")) == {"w": ("nonfinite", 390)}


def test_a_restart_is_read_across(lite: Store, write_run: WriteRun) -> None:
    """Of the steps that were done again the newer count: with them nothing parts until step 300."""
    baseline, first = written(write_run, "one"), written(write_run, "two")
    second = write_run("two", attempt=1, name="two")
    second.points("loss", range(200, 400), 1.0)
    for step in range(0, 400, 10):
        values = spread(step, -10)
        baseline.frame(step, {"w": values})
        if step < 250:
            first.frame(step, {"w": values * (100 if step >= 200 else 1)})
        if step >= 200:
            second.frame(step, {"w": values * (100 if step >= 300 else 1)})
    for writer in (baseline, first, second):
        writer.commit()
    found = compared(lite, "one", "two")
    assert parted(found) == {"w": ("distance", 300)}
    assert found.num_frames == 40


def test_applied_steps_are_laid_beside_each_other(lite: Store, write_run: WriteRun) -> None:
    """A run that skipped its first 100 steps does at 100 what the baseline does at 0: by attempts it parts, by applied
    steps it does not."""
    for run_id, num_skipped in (("one", 0), ("two", 100)):
        writer = written(write_run, run_id)
        for step in range(num_skipped):
            writer.skip(step, "settling")
        for step in range(0, 400, 10):
            writer.frame(step, {"w": spread(max(0, step - num_skipped), -10 - max(0, step - num_skipped) / 20)})
        writer.commit()
    assert parted(compared(lite, "one", "two")).keys() == {"w"}
    applied = compared(lite, "one", "two", options=Options(align="applied"))
    assert parted(applied) == {}
    assert layer_of(applied, "w").distance_bits == 0.0


def test_why_nothing_can_be_said(lite: Store, write_run: WriteRun) -> None:
    """No sketches, no layer in common, too few frames in common."""
    for run_id, layer, steps in (
        ("a", "x", range(0, 400, 10)),
        ("b", "y", range(0, 400, 10)),
        ("c", "x", range(0, 11, 10)),
    ):
        writer = written(write_run, run_id)
        for step in steps:
            writer.frame(step, {layer: spread(step, -10)})
        writer.commit()
    written(write_run, "bare").commit()
    assert compared(lite, "a", "bare").reason == "bare has no sketches of its layers"
    found = compared(lite, "a", "b")
    assert found.reason == "the runs have no layer in common: no parameter has the same name in both"
    assert (found.only_baseline, found.only_member, found.layers) == (["x"], ["y"], [])
    assert compared(lite, "a", "c").reason == "the runs have 2 sketched steps in common; at least 3 are needed"


def test_a_pair_that_did_not_change_is_not_measured_again(
    lite: Store, write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it is asked, and whatever other members get; what is new is measured."""
    writers = {run_id: written(write_run, run_id) for run_id in ("a", "b", "c")}
    for writer in writers.values():
        for step in range(0, 100, 10):
            writer.frame(step, {"w": spread(step, -10)})
        writer.commit()
    measured, whole = [], numerics._measured

    def watched(*views: Any) -> Any:
        measured.append(views[1].run_id)
        return whole(*views)

    monkeypatch.setattr(numerics, "_measured", watched)
    comparisons = Comparisons(Views(lite))
    numerics.diverge(comparisons.get(["a", "b", "c"]))
    assert measured == ["b", "c"]
    writers["c"].frame(100, {"w": spread(100, -10)})
    writers["c"].commit()
    numerics.diverge(comparisons.get(["a", "b", "c"]))
    assert measured == ["b", "c", "c"]
