"""Quality: outcomes, where runs part, noise of repeats and of pairs, what cannot be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.compare import judging, quality
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.members import metrics
from halfscope_server.compare.quality import DifferenceCurve
from halfscope_server.compare.types import Options, Quality
from halfscope_server.query import Views
from halfscope_server.store.store import Store
from scipy import stats

from tests.helpers.comparing import Recordings

WriteRun = Callable[..., Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]
NUM_STEPS = 2_000


def write(
    write_run: WriteRun,
    run_id: str,
    loss: Floats,
    *,
    seed: int = 0,
    precision: str = "FP32",
) -> None:
    """A run with what makes it comparable."""
    writer = write_run(run_id, config={"seed": seed})
    writer.facts(precision=precision, seed=seed, weights={"digest": f"{seed}"}, scalers=[])
    writer.points("loss", range(loss.size), loss)
    writer.points("input.mean", range(0, loss.size, 10), np.sin(seed + np.arange(0, loss.size, 10)))
    writer.points("samples", [0], 64.0, kind="state")
    writer.commit()


def compare(store: Store, *run_ids: str, **options: Any) -> Comparison:
    """Runs as they are, the first as the baseline."""
    views = [Views(store).get(run_id) for run_id in run_ids]
    return Comparison([view for view in views if view is not None], Options(**options))


def member(store: Store, **options: Any) -> Quality:
    """`run2` against `run1`."""
    return compare(store, "run1", "run2", **options).quality[1]


def training(seed: int, num_steps: int = NUM_STEPS) -> Floats:
    """A loss that falls, with 20% of noise from batch to batch."""
    rng = np.random.default_rng(seed)
    fall = 0.5 + 1.5 * np.exp(-np.arange(num_steps) / (num_steps / 4))
    return np.asarray(fall * np.exp(rng.normal(0, 0.2, num_steps)))


@pytest.mark.parametrize("first", [1_200, 0])
def test_a_lasting_difference_is_worse_from_where_it_began(lite: Store, write_run: WriteRun, first: int) -> None:
    """Eight percent more from a step on, where two runs of one seed differ by half a percent a step: level, difference
    and its interval by hand; the step never before the truth and soon behind it."""
    base, step = training(1), np.arange(NUM_STEPS)
    other = base * (1 + 0.005 * np.random.default_rng(2).normal(size=NUM_STEPS)) * np.where(step >= first, 1.08, 1.0)
    write(write_run, "run1", base)
    write(write_run, "run2", other, precision="FP16-AMP")
    found = member(lite)
    assert (found.outcome, found.noise, found.reason) == ("worse", "paired", "one run each")
    assert found.final is not None
    assert found.difference is not None
    # Cells of four steps; the last tenth of them.
    assert found.final.value == pytest.approx(other[-204:].mean(), rel=2e-3)
    assert found.difference.value == pytest.approx(other[-204:].mean() / base[-204:].mean() - 1, abs=2e-3)
    assert found.difference.low is not None
    assert found.difference.high is not None
    assert found.difference.low < 0.08 < found.difference.high
    assert found.first_step is not None
    assert first <= found.first_step <= first + 100
    assert member(lite, tolerance_share=0.1).outcome == "equal"


def test_less_is_better_of_a_loss_and_more_of_an_accuracy(lite: Store, write_run: WriteRun) -> None:
    """The same numbers under three names; of a name that says nothing neither is claimed."""
    rng = np.random.default_rng(3)
    base = np.linspace(0.2, 0.9, 300) + rng.normal(0, 0.002, 300)
    for run, values in (("run1", base), ("run2", base + 0.05)):
        writer = write_run(run)
        writer.facts(precision=run, seed=0)
        for metric in ("val/loss", "val_accuracy", "gizmo", "grad.norm"):
            writer.points(metric, range(300), values)
        writer.commit()
    assert metrics(compare(lite, "run1", "run2").views) == ["gizmo", "val/loss", "val_accuracy"]
    found = {name: member(lite, metric=name).outcome for name in ("val/loss", "val_accuracy", "gizmo")}
    assert found == {"val/loss": "worse", "val_accuracy": "better", "gizmo": "unknown"}


def test_of_another_seed_nothing_small_is_said(lite: Store, write_run: WriteRun) -> None:
    """Ten percent are unknown; half of what the baseline learned, lost for good, is worse."""
    write(write_run, "run1", training(1))
    write(write_run, "run2", training(2) * 1.1, seed=1, precision="FP16-AMP")
    found = member(lite)
    assert (found.outcome, found.noise, found.noise_share) == ("unknown", "none", None)
    assert found.reason == "another data order, one run each"
    assert found.difference is not None
    assert found.difference.low is None
    write(write_run, "run3", np.maximum(training(3), 1.4), seed=2, precision="FP16-AMP")
    assert compare(lite, "run1", "run3").quality[1].outcome == "worse"


def test_repeats_make_a_prediction_interval(lite: Store, write_run: WriteRun) -> None:
    """Four seeds of FP32 and one of FP16: the band is that of scipy's t; repeats themselves are never worse."""
    runs = []
    for seed in range(4):
        runs.append(f"fp32-{seed}")
        write(write_run, runs[-1], training(seed) * (1 + 0.01 * seed), seed=seed)
    for name, factor in (("near", 1.02), ("far", 1.3)):
        write(write_run, name, training(9) * factor, seed=9, precision="FP16-AMP")
    found = compare(lite, *runs, "far")
    assert [item.group for item in found.members] == [0, 0, 0, 0, 1]
    far = found.quality[-1]
    assert (far.outcome, far.noise, far.reason) == ("worse", "repeats", "1 against 4 repeats")
    shares = [0.0] + [item.difference.value for item in found.quality[1:4] if item.difference]
    half = stats.t.ppf(0.99, 3) * np.std(shares, ddof=1) * np.sqrt(1 + 1 / 4)
    assert far.noise_share == pytest.approx(half, rel=1e-6)
    assert {item.outcome for item in found.quality[:4]} <= {"equal", "unknown"}
    assert compare(lite, *runs, "near").quality[-1].outcome == "equal"


def test_a_run_that_ends_as_nan_is_worse_from_its_first_nan(lite: Store, write_run: WriteRun) -> None:
    """To the step, short or long; both NaN is unknown, and NaN here and there is left out and counted."""
    for run, num_steps, first in (("short", 500, 321), ("long", 40_000, 33_337)):
        loss = training(4, num_steps)
        write(write_run, f"{run}1", loss)
        broken = loss.copy()
        broken[first:] = np.nan
        broken[first - 5] = np.nan
        write(write_run, f"{run}2", broken, precision="FP16-AMP")
        found = compare(lite, f"{run}1", f"{run}2").quality[1]
        assert (found.outcome, found.first_step, found.final) == ("worse", first, None)
        assert found.final_words == f"NaN from step {first:,}"
        assert compare(lite, f"{run}2", f"{run}1").quality[1].outcome == "better"
    both = compare(lite, "short2", "long2").quality[1]
    assert (both.outcome, both.reason) == ("unknown", "neither of the two ends as a number")
    seldom = training(4, 500)
    seldom[[50, 60]] = np.inf
    write(write_run, "seldom", seldom)
    counted = compare(lite, "short1", "seldom").quality[1]
    assert (counted.outcome, counted.reason) == ("equal", "one run each; 2 values that are no number left out")


def test_too_little_in_common_is_unknown(lite: Store, write_run: WriteRun) -> None:
    """Three places tell nothing; a run before its first step neither."""
    write(write_run, "run1", training(1, 3))
    write(write_run, "run2", training(1, 500), precision="FP16-AMP")
    found = member(lite)
    assert (found.outcome, found.reason) == ("unknown", "both have loss at 3 places; at least 4 are needed")
    write_run("run3").commit()
    assert compare(lite, "run1", "run3").quality[1].reason == "the run has no step yet"


def test_the_difference_is_drawn_with_its_band(lite: Store, write_run: WriteRun) -> None:
    """Outside of the band where the run is worse, inside before; no band where no noise is known."""
    base, step = training(1), np.arange(NUM_STEPS)
    write(write_run, "run1", base)
    write(write_run, "run2", base * np.where(step >= 1_000, 1.1, 1.0), precision="FP16-AMP")
    write(write_run, "run3", training(2), seed=1)
    found = compare(lite, "run1", "run2", "run3")
    curve = quality.difference_curve(found, 1)
    assert isinstance(curve, DifferenceCurve)
    late = curve.x > 1_100
    assert (curve.relative[late] > curve.high[late]).all()
    early = curve.x < 1_000
    assert (np.abs(curve.relative[early]) <= curve.high[early]).all()
    np.testing.assert_allclose(curve.relative[late], 0.1, atol=1e-9)
    unknown = quality.difference_curve(found, 2)
    assert isinstance(unknown, DifferenceCurve)
    assert np.isinf(unknown.high).all()


def test_loss_oscillation_is_that_of_a_plain_loop(lite: Store, write_run: WriteRun) -> None:
    """Running median and percentiles by hand; none before there are enough steps."""
    loss = training(5, 700)
    write(write_run, "run1", loss)
    write(write_run, "run2", loss[:300])
    found = compare(lite, "run1", "run2").quality
    median = [np.median(loss[at - 199 : at + 1]) for at in range(500, 700)]
    low, high = np.percentile(loss[500:] - median, [5, 95])
    assert found[0].oscillation == pytest.approx((high - low) / (2 * median[-1]), rel=1e-12)
    assert found[1].oscillation is None


def test_healthy_pairs_that_wander_apart_are_equal(lite: Store, write_run: WriteRun) -> None:
    """Six pairs whose difference is a slow walk of a few percent, as rounding alone makes: no false alarm."""
    for seed in range(6):
        rng, base = np.random.default_rng(100 + seed), training(seed, 1_000)
        walk = np.cumsum(rng.normal(0, 0.001, 1_000)) * np.linspace(0, 1, 1_000)
        write(write_run, f"a{seed}", base)
        write(write_run, f"b{seed}", base * np.exp(walk + rng.normal(0, 0.03, 1_000)), precision="FP16-AMP")
        assert compare(lite, f"a{seed}", f"b{seed}").quality[1].outcome == "equal"


@pytest.mark.parametrize(
    ("baseline", "name", "outcome"),
    [
        ("fp32", "fp16", "equal"),
        ("fp32", "fp32_again", "equal"),
        ("fp32", "fp32_seldom", "equal"),
        ("fp32", "fp32_accumulated", "equal"),
        ("fp32", "fp32_seed1", "unknown"),
        ("fp32", "fp32_other_order", "unknown"),
        ("fp32", "fp16_underflow", "worse"),
        ("fp32_small_steps", "bf16_lost_updates", "worse"),
        ("fp32_outliers", "fp16_collapsed", "worse"),
    ],
)
def test_real_trainings_are_judged_rightly(recordings: Recordings, baseline: str, name: str, outcome: str) -> None:
    """Recorded by a real agent; what is worse is so from the trouble on."""
    found = Comparison(recordings.views(baseline, name))
    assert found.quality[1].outcome == outcome, found.quality[1]
    judged = judging.judge(found, 1)
    assert isinstance(judged, judging.Judgement)
    if outcome == "unknown":
        assert judged.noise == "none"


def test_what_a_run_came_to_beyond_the_others_end_is_told_and_not_judged(lite: Store, write_run: WriteRun) -> None:
    """NaN from step 1,500 on beside a run that ended at 1,000: what both have decides, either way round."""
    base = training(1)
    broken = np.where(np.arange(NUM_STEPS) >= 1_500, np.nan, base)
    write(write_run, "long", broken)
    write(write_run, "short", base[:1_000] * 1.001, precision="FP16-AMP")
    for pair, whose in ((("long", "short"), "the baseline"), (("short", "long"), "the run")):
        found = compare(lite, *pair).quality[1]
        assert found.outcome == "equal"
        assert f"later {whose}'s loss is NaN from step 1,500, which the other had not reached" in found.reason


def test_a_last_loss_whose_step_was_withheld_is_no_ruin(lite: Store, write_run: WriteRun) -> None:
    """An overflow at the newest step that the scaler skipped; of three in a row, or of one that was applied, it is."""
    base = training(1, 500)
    write(write_run, "run1", base)
    outcomes = []
    for run, num_bad, is_skipped in (("withheld", 1, True), ("applied", 1, False), ("row", 3, True)):
        loss = base.copy()
        loss[-num_bad:] = np.inf
        write(write_run, run, loss, precision="FP16-AMP")
        if is_skipped:
            writer = write_run(run, attempt=0, rank=1, world_size=2)
            for step in range(500 - num_bad, 500):
                writer.skip(step, "single")
            writer.commit()
        outcomes.append(compare(lite, "run1", run).quality[1].outcome)
    assert outcomes == ["equal", "worse", "worse"]


@pytest.mark.parametrize("offset", [5, 9])
def test_losses_logged_at_other_steps_are_compared_all_the_same(lite: Store, write_run: WriteRun, offset: int) -> None:
    """Every tenth step, but not the same ones: each stretch of ten holds one value of either run."""
    fall = 0.5 + 1.5 * np.exp(-np.arange(NUM_STEPS) / 500)
    for run, first, level in (("run1", 0, 1.0), ("same", offset, 1.0), ("half", offset, 1.5)):
        writer = write_run(run)
        writer.facts(precision=run, seed=0)
        writer.points("loss", range(first, NUM_STEPS, 10), level * fall[first::10])
        writer.commit()
    assert compare(lite, "run1", "same").quality[1].outcome == "equal"
    worse = compare(lite, "run1", "half").quality[1]
    assert worse.outcome == "worse"
    assert worse.difference is not None
    assert worse.difference.count == 20
    assert worse.difference.value == pytest.approx(0.5, abs=0.01)


def test_within_a_band_that_hides_everything_nothing_is_equal(lite: Store, write_run: WriteRun) -> None:
    """Two short trainings fed other batches at the same places, by what was recorded alike: the noise is told."""
    for run in (0, 1):
        writer = write_run(f"run{run + 1}")
        writer.facts(precision=str(run), seed=0)
        writer.points("loss", range(24), 1 + np.random.default_rng(run).lognormal(0, 1.5, 24))
        writer.commit()
    found = member(lite)
    assert (found.outcome, found.noise) == ("unknown", "paired")
    assert "hides any difference that matters" in found.reason


def test_a_few_steps_show_nobody_to_be_equal(lite: Store, write_run: WriteRun) -> None:
    """Six steps that agree to a thousandth are no finding; six that differ by half are one; twenty that agree are."""
    for name, num_steps, factor in (("few", 6, 1.001), ("far", 6, 1.5), ("enough", 20, 1.001)):
        for run, times in ((f"{name}1", 1.0), (f"{name}2", factor)):
            writer = write_run(run)
            writer.facts(precision=run[-1], seed=0)
            writer.points("loss", range(num_steps), times * np.linspace(2.3, 2.2, num_steps))
            writer.commit()
    found = {name: compare(lite, f"{name}1", f"{name}2").quality[1] for name in ("few", "far", "enough")}
    assert {name: quality.outcome for name, quality in found.items()} == {
        "few": "unknown",
        "far": "worse",
        "enough": "equal",
    }
    assert found["few"].reason.startswith("6 steps that both have show no two runs to be equal")


def test_a_band_that_is_wide_beside_the_level_is_told(lite: Store, write_run: WriteRun) -> None:
    """Losses that fell from 2 to about a hundredth and differ by a third of that: equal, with how coarse that is."""
    fall = 0.01 + 2 * np.exp(-np.arange(NUM_STEPS) / 100)
    for run in (0, 1):
        noise = np.random.default_rng(run).normal(0, 0.5, NUM_STEPS)
        write(write_run, f"run{run + 1}", fall * np.exp(noise), precision=str(run))
    found = member(lite)
    assert found.outcome == "equal"
    assert found.noise_share is not None
    assert found.noise_share > 0.25
    assert "is small beside what the baseline gained" in found.reason


def test_runs_that_skipped_every_step_have_no_applied_one_to_compare(lite: Store, write_run: WriteRun) -> None:
    """By applied steps all of theirs lie at one place."""
    for run in ("run1", "run2"):
        writer = write_run(run)
        writer.facts(precision=run, seed=0)
        writer.points("loss", range(30), np.linspace(2, 1, 30))
        for step in range(30):
            writer.skip(step, "single")
        writer.commit()
    assert member(lite, align="applied").outcome == "unknown"


def test_copies_of_a_run_are_no_repeats(lite: Store, write_run: WriteRun) -> None:
    """Four runs of one seed that agree to the bit tell nothing of chance: a pair's own scatter does."""
    base = training(1, 600)
    for run in ("run1", "run2", "run3", "run4"):
        write(write_run, run, base)
    write(write_run, "half", base * (1.01 + 0.02 * np.random.default_rng(2).normal(size=600)), precision="FP16-AMP")
    found = compare(lite, "run1", "run2", "run3", "run4", "half").quality
    assert [item.noise for item in found[1:]] == ["paired"] * 4
    assert [item.outcome for item in found[1:]] == ["equal"] * 4


@pytest.mark.parametrize("largest", [1e200, 1e300])
def test_losses_whose_squares_are_no_numbers_are_judged_as_any_others(
    lite: Store, write_run: WriteRun, largest: float
) -> None:
    """The same two runs with a factor of far beyond 1e154: the same outcome, step and share."""
    base = training(1)
    other = base * (1 + 0.005 * np.random.default_rng(2).normal(size=NUM_STEPS)) * 1.08
    found = []
    for at, factor in enumerate((1.0, largest / 8)):
        for run, values in (("base", base), ("other", other)):
            write(write_run, f"{run}{at}", values * factor, precision=run)
        found.append(compare(lite, f"base{at}", f"other{at}").quality[1])
    usual, large = found
    assert (large.outcome, large.first_step) == (usual.outcome, usual.first_step) == ("worse", usual.first_step)
    assert large.difference is not None
    assert usual.difference is not None
    assert large.difference.value == pytest.approx(usual.difference.value, rel=1e-9)
    assert large.noise_share == pytest.approx(usual.noise_share, rel=1e-9)
    assert large.difference.high == pytest.approx(usual.difference.high, rel=1e-9)


def test_what_walks_by_itself_without_batch_noise_is_no_difference(lite: Store, write_run: WriteRun) -> None:
    """Differences that are sums of independent steps, of trainings on all data at once: hardly any of 30 is called one,
    where a constant two percent always is."""
    fall, called = 0.5 + 1.5 * np.exp(-np.arange(NUM_STEPS) / 500), 0
    write(write_run, "run1", fall)
    for at in range(30):
        walk = np.cumsum(np.random.default_rng(at).normal(size=NUM_STEPS)) * 0.02 / np.sqrt(NUM_STEPS)
        write(write_run, f"walk{at}", fall * (1 + walk), precision="FP16-AMP")
        called += compare(lite, "run1", f"walk{at}").quality[1].outcome in ("worse", "better")
    assert called <= 2
    write(write_run, "run2", fall * 1.02, precision="FP16-AMP")
    assert member(lite).outcome == "worse"


def test_beside_a_level_of_next_to_nothing_the_difference_is_told_as_it_is(lite: Store, write_run: WriteRun) -> None:
    """A loss that came down to 1e-5 against one that stays at 0.05: no thousands of percent, but both numbers."""
    rng = np.random.default_rng(4)
    base = 1e-5 + 2.0 * np.exp(-np.arange(NUM_STEPS) / 50) * np.exp(rng.normal(0, 0.1, NUM_STEPS))
    write(write_run, "run1", base)
    write(write_run, "run2", base + 0.05, precision="FP16-AMP")
    found = member(lite)
    assert found.outcome == "worse"
    assert found.absolute == pytest.approx(0.05, rel=1e-6)
    assert found.noise_absolute is not None
    assert 0 < found.noise_absolute < 0.05
    write(write_run, "run3", base * 1.08, precision="FP16-AMP")
    small = compare(lite, "run1", "run3").quality[1]
    assert (small.absolute, small.noise_absolute) == (None, None)


def test_runs_without_a_loss_are_compared_by_the_first_metric_that_both_have(lite: Store, write_run: WriteRun) -> None:
    """As a GAN logs them: of names that say which way is better, before others; what was asked for is told. Where one
    is asked for by name it stays."""
    rng = np.random.default_rng(5)
    for run in ("run1", "run2"):
        writer = write_run(run)
        writer.facts(precision=run, seed=0)
        for metric in ("balance", "d_loss", "g_loss"):
            writer.points(metric, range(300), 1 + rng.normal(0, 0.01, 300))
        if run == "run2":
            writer.points("a_loss", range(300), 1.0)
        writer.commit()
    found = compare(lite, "run1", "run2")
    assert (found.options.metric, found.metric_asked) == ("d_loss", "loss")
    assert found.report.options.metric == "d_loss"
    assert found.quality[1].difference is not None
    assert "not both have loss: they are compared by d_loss" in found.report.verdicts[0].limits
    assert compare(lite, "run1", "run2", metric="balance").options.metric == "balance"
    assert compare(lite, "run1", "run2", metric="a_loss").quality[1].reason == "the baseline has no a_loss"
