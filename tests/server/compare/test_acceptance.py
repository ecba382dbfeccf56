"""The whole path on real trainings: what happened in them is what the verdict says, and nothing else is claimed."""

from __future__ import annotations

import pytest
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Options, Report

from tests.helpers.compared_trainings import RECIPES, TROUBLE_STEP, Recipe
from tests.helpers.comparing import Recordings

SKETCH_STEPS = Recipe().every
SEEDS = ("fp32", "fp32_seed1", "fp32_seed2", "fp32_seed3")


def _report(recordings: Recordings, *names: str, options: Options | None = None) -> Report:
    return Comparison(recordings.views(*names), options).report


@pytest.mark.parametrize("member", ["fp32_again", "fp16", "bf16_amp", "fp32_seldom", "fp32_accumulated"])
def test_what_is_healthy_is_equal_within_noise(recordings: Recordings, member: str) -> None:
    """The same seed and batches: in half precision, told of more seldom, in two micro-batches."""
    report = _report(recordings, "fp32", member)
    (verdict,) = report.verdicts
    assert (report.outcome, verdict.outcome, verdict.reasons, verdict.layer) == ("equal", "equal", [], "")
    assert "equal to" in report.sentence
    assert "within noise" in report.sentence
    assert "not comparable" not in report.sentence
    assert [layer.layer for layer in report.numerics[1].layers if layer.first_step is not None] == []
    if not member.startswith(("fp16", "bf16")):
        difference = report.quality[1].difference
        assert difference is not None
        assert difference.value == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("baseline", "member", "step", "layer", "reason"),
    [
        ("fp32", "fp16_underflow", TROUBLE_STEP, "narrow", "underflow"),
        ("fp32", "fp16_underflow_always", 0, "narrow", "underflow"),
        ("fp32_small_steps", "bf16_lost_updates", 0, "", "lost_updates"),
        ("fp32_outliers", "fp16_collapsed", TROUBLE_STEP, "stem", "scale_collapsed"),
        ("fp32_outliers", "fp16_poisoned", TROUBLE_STEP, "stem", "nonfinite_applied"),
    ],
)
def test_what_is_worse_is_told_with_layer_step_and_reason(
    recordings: Recordings, baseline: str, member: str, step: int, layer: str, reason: str
) -> None:
    """Each mechanism by its name, at the step at which it began to within one sketch, in the layer where it did."""
    report = _report(recordings, baseline, member)
    (verdict,) = report.verdicts
    assert (report.outcome, verdict.outcome) == ("worse", "worse")
    assert verdict.reasons[0].id == reason
    assert verdict.reasons[0].certainty == "measured"
    assert verdict.from_step is not None
    assert step <= verdict.from_step <= step + SKETCH_STEPS
    assert verdict.layer.startswith(layer)
    assert "is worse than" in report.sentence
    assert f"because {verdict.reasons[0].text}" in report.sentence
    quality = report.quality[1]
    assert quality.first_step is not None
    assert quality.first_step >= verdict.from_step


@pytest.mark.parametrize("pair", [(one, other) for one in SEEDS for other in SEEDS if one < other])
def test_repeats_with_other_seeds_are_no_worse_and_no_better(recordings: Recordings, pair: tuple[str, str]) -> None:
    """Of one run each nothing can be said, and that is what is said; no layer is said to part."""
    report = _report(recordings, *pair)
    (verdict,) = report.verdicts
    assert verdict.outcome == "unknown"
    assert verdict.reasons == []
    assert "cannot be judged" in report.sentence
    assert report.numerics[1].first_step is None


def test_repeats_make_a_band_of_noise(recordings: Recordings) -> None:
    """Four repeats of the baseline: no repeat stands out, healthy FP16 is equal, and the band is theirs; but for the
    FP16 run of the baseline's own seed, of which the pair tells more."""
    report = _report(recordings, *SEEDS, "fp16", "fp16_seed1")
    assert [verdict.outcome for verdict in report.verdicts] == ["equal"] * 5
    noise = [quality.noise for quality in report.quality[1:]]
    assert noise == ["paired" if name == "fp16" else "repeats" for name in (*SEEDS, "fp16", "fp16_seed1")[1:]]
    assert report.outcome == "equal"


@pytest.mark.parametrize(
    ("member", "named"),
    [("fp32_batch32", "batch size"), ("fp32_other_order", "repeat of the baseline")],
)
def test_what_is_not_comparable_is_not_compared(recordings: Recordings, member: str, named: str) -> None:
    """Neither worse nor better, and what differs is named."""
    report = _report(recordings, "fp32", member)
    assert report.outcome == "unknown"
    assert named in report.sentence
    assert report.verdicts[0].reasons == []


def test_another_batch_size_makes_speed_incomparable(recordings: Recordings) -> None:
    """It is named in the sentence in place of a speedup, and beside the numbers."""
    report = _report(recordings, "fp32", "fp32_batch32")
    assert "speed and memory not comparable (batch size)" in report.sentence
    assert "speedup" not in report.sentence
    assert "batch_size" in report.cost[1].confounded_by


def test_samples_line_up_runs_of_other_batch_sizes(recordings: Recordings) -> None:
    """Half the batch, twice the steps: by samples both end at the same place."""
    report = _report(recordings, "fp32", "fp32_batch32", options=Options(align="samples"))
    assert report.outcome == "unknown"
    final = [quality.final for quality in report.quality]
    assert all(final)
    by_steps = _report(recordings, "fp32", "fp32_batch32").quality[1].final
    assert by_steps is not None
    assert final[1] is not None
    assert final[1].value < by_steps.value  # the first half of its steps only


def test_the_worst_of_several_comes_first(recordings: Recordings) -> None:
    """One sentence over all of them, with the cause of the worst."""
    report = _report(recordings, "fp32", "fp16", "fp16_underflow", "fp32_batch32")
    assert report.outcome == "worse"
    assert [verdict.outcome for verdict in report.verdicts] == ["equal", "worse", "unknown"]
    worse, unknown, equal = (report.sentence.index(word) for word in ("is worse", "cannot be judged", "is equal"))
    assert worse < unknown < equal
    assert "below FP16's floor" in report.sentence
    assert len(RECIPES) == len({recipe.key for recipe in RECIPES.values()})


def test_repeats_beside_a_pair_make_its_verdict_no_less_certain(recordings: Recordings) -> None:
    """An FP16 run that underflows is worse also where other seeds of both precisions stand beside it, and where it
    counts as a repeat of healthy FP16 runs; those stay equal, and its fault widens no band."""
    alone = _report(recordings, "fp32", "fp16_underflow")
    beside = _report(recordings, "fp32", "fp16_underflow", "fp16", "fp32_seed1", "fp16_seed1")
    assert beside.verdicts[0].outcome == alone.verdicts[0].outcome == "worse"
    assert beside.quality[1].noise_share == pytest.approx(alone.quality[1].noise_share)
    assert [verdict.outcome for verdict in beside.verdicts[1:]] == ["equal", "unknown", "equal"]
    healthy = _report(recordings, "fp32", "fp16", "fp32_seed1", "fp16_seed1")
    assert beside.quality[4].noise == healthy.quality[3].noise == "repeats"
    assert beside.quality[4].noise_share == pytest.approx(healthy.quality[3].noise_share)
