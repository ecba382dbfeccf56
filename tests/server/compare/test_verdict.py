"""What is said of a member, whichever way its parts come out: the parts are given, outcome and words are checked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import (
    Alignment,
    Cost,
    Estimate,
    Fairness,
    FairnessItem,
    Numerics,
    Options,
    Outcome,
    Quality,
    Reason,
    Verdict,
)
from halfscope_server.compare.verdict import judge
from halfscope_server.query import Views
from halfscope_server.store.store import Store

from tests.helpers.comparing import Recordings
from tests.server.conftest import RunWriter

UNDERFLOW = Reason(
    id="underflow", text="head lost 62% of its gradient", layer="head.weight", step=300, certainty="measured", score=20
)
QUALITY = Quality(
    run="b",
    metric="loss",
    outcome="equal",
    lower_is_better=True,
    final=Estimate(value=0.2),
    final_words="0.2",
    difference=Estimate(value=0.004),
    first_x=None,
    first_step=None,
    noise="paired",
    noise_share=0.01,
    oscillation=None,
)
WORSE = replace(QUALITY, outcome="worse", difference=Estimate(value=0.123), first_x=340.0, first_step=340)
NUMERICS = Numerics(
    run="b",
    layers=[],
    num_common=2,
    only_baseline=[],
    only_member=[],
    num_frames=40,
    interval=10,
    first_step=None,
    first_layer="",
)
COST = Cost(
    run="b",
    throughput=None,
    throughput_unit="samples/s",
    speedup=Estimate(value=1.834, low=1.79, high=1.88),
    step_s=None,
    step_spread=None,
    warmup_steps=0,
    time_to_baseline_s=None,
    baseline_time_s=None,
    peak_memory_bytes=None,
    memory_of="device",
    parameter_bytes=None,
    gradient_bytes=None,
    optimizer_state_bytes=None,
    memory_ratio=0.624,
    confounded_by=[],
    because=[],
)


def _item(of: str, title: str, text: str, *confounds: Any, state: Any = "different") -> FairnessItem:
    return FairnessItem(
        id=of,
        title=title,
        state=state,
        values=["64", "32"],
        states=["same", state],
        confounds=list(confounds),
        text=text,
    )


BATCH = _item("batch_size", "Batch size", "32 against 64; quality is not comparable", "quality", "speed")
SEED = _item("seed", "Seed", "1 against 0; quality is not comparable", "quality")
LOAD = _item("load", "Other load", "1.2 cores against 0", "speed")


def _judged(
    store: Store,
    quality: Quality = QUALITY,
    numerics: Numerics = NUMERICS,
    *,
    reasons: tuple[Reason, ...] = (),
    items: tuple[FairnessItem, ...] = (),
    live: bool = False,
    cost: Cost = COST,
    align: Alignment = "attempts",
) -> tuple[Verdict, str, Outcome]:
    views = Views(store)
    for run_id, name in (("a", "fp32"), ("b", "fp16")):
        if store.get_run(run_id) is None:
            writer = RunWriter(store, run_id, name=name)
            writer.points("loss", np.arange(20), 1.0)
            if not live:
                writer.end()
            writer.commit()
    comparison = Comparison([view for run_id in "ab" if (view := views.get(run_id))], Options(align=align))
    comparison.memo("quality", lambda: [replace(QUALITY, run="a"), quality])
    comparison.memo("numerics", lambda: [replace(NUMERICS, run="a"), numerics])
    comparison.memo("cost", lambda: [replace(COST, run="a", speedup=None), cost])
    comparison.memo("fairness", lambda: Fairness(items=list(items), num_same=0, num_different=0, num_unknown=0))
    comparison.memo(("reasons", 1), lambda: list(reasons))
    (verdict,), sentence, outcome = judge(comparison)
    assert sentence == verdict.sentence
    return verdict, sentence, outcome


def test_equal_runs_are_told_with_their_noise_speed_and_memory(sqlite_store: Store) -> None:
    """One sentence, no cause, no place."""
    verdict, sentence, outcome = _judged(sqlite_store)
    assert outcome == "equal"
    assert sentence == (
        "fp16 is equal to fp32 within noise (loss +0.4%, noise ±1%); speedup 1.83× (1.79 to 1.88), memory 0.62×."
    )
    assert (verdict.from_step, verdict.layer) == (None, "")
    assert any("one run each" in limit and "0.5%" in limit for limit in verdict.limits)


def test_a_worse_run_is_told_from_where_and_why(sqlite_store: Store) -> None:
    """The metric's step, the layer's own, and the cause; a cause that is only likely is called that."""
    verdict, sentence, outcome = _judged(sqlite_store, WORSE, reasons=(UNDERFLOW,))
    assert outcome == "worse"
    assert sentence.startswith(
        "fp16 is worse than fp32 by 12.3% in loss from step 340 on, starting in head at step 300, because head lost 62%"
    )
    assert (verdict.from_step, verdict.layer) == (300, "head.weight")
    _, sentence, _ = _judged(sqlite_store, WORSE, reasons=(replace(UNDERFLOW, certainty="likely"),))
    assert "likely because head lost" in sentence


@pytest.mark.parametrize(
    ("numerics", "step", "layer", "told"),
    [
        (NUMERICS, 340, "", "why cannot be told: no layer parts before that"),
        (
            replace(NUMERICS, first_step=310, first_layer="body"),
            310,
            "body",
            "in body at step 310, why cannot be told: nothing was withheld or lost",
        ),
        # What parts later than the metric is no cause of it.
        (replace(NUMERICS, first_step=380, first_layer="body"), 340, "", "why cannot be told"),
        (replace(NUMERICS, reason="the runs have no layer in common"), 340, "", "no layer in common"),
    ],
)
def test_without_a_mechanism_no_cause_is_made_up(
    sqlite_store: Store, numerics: Numerics, step: int, layer: str, told: str
) -> None:
    """What is not known is said to be so; layers that part first are where it starts."""
    verdict, sentence, _ = _judged(sqlite_store, WORSE, numerics)
    assert told in sentence
    assert "because" not in sentence.replace("why cannot be told", "")
    assert (verdict.from_step, verdict.layer) == (step, layer)


@pytest.mark.parametrize("quality", [QUALITY, WORSE, replace(WORSE, outcome="better")])
def test_what_confounds_quality_leaves_it_open(sqlite_store: Store, quality: Quality) -> None:
    """Whatever the numbers say; and what differs is named, in the sentence and among the limits."""
    verdict, sentence, outcome = _judged(sqlite_store, quality, items=(BATCH,))
    assert outcome == "unknown"
    assert "cannot be judged against fp32: batch size 32 against 64" in sentence
    assert "speed and memory not comparable (batch size)" in sentence
    assert "speedup" not in sentence
    assert "batch size: 32 against 64" in verdict.limits


def test_a_metric_that_is_no_number_is_worse_whatever_else_differs(sqlite_store: Store) -> None:
    """NaN is not a matter of the batch size."""
    lost = replace(WORSE, final=None, final_words="NaN from step 340", difference=None)
    verdict, sentence, outcome = _judged(sqlite_store, lost, items=(BATCH,))
    assert outcome == verdict.outcome == "worse"
    assert "its loss is NaN from step 340" in sentence


def test_other_seeds_are_what_noise_is_about(sqlite_store: Store) -> None:
    """They are no confounder: the band that the outcome rests on is of their size."""
    assert _judged(sqlite_store, WORSE, items=(SEED,))[2] == "worse"
    assert _judged(sqlite_store, QUALITY, items=(SEED,))[2] == "equal"


def test_other_load_leaves_quality_alone(sqlite_store: Store) -> None:
    """Speed is not told; the outcome is."""
    _, sentence, outcome = _judged(sqlite_store, WORSE, items=(LOAD,))
    assert outcome == "worse"
    assert "speed and memory not comparable (other load)" in sentence


def test_an_equal_metric_with_a_measured_mechanism_stays_equal_and_says_so(sqlite_store: Store) -> None:
    """What was lost is told, and not called worse."""
    _, sentence, outcome = _judged(sqlite_store, reasons=(UNDERFLOW,))
    assert outcome == "equal"
    assert "within noise (loss +0.4%, noise ±1%), but head lost 62% of its gradient;" in sentence


def test_a_large_difference_with_a_measured_mechanism_is_worse(sqlite_store: Store) -> None:
    """One run each cannot tell a trouble that sets in from noise; what was measured can, and the limits say so."""
    wide = replace(QUALITY, difference=Estimate(value=0.82), noise_share=1.57)
    verdict, sentence, outcome = _judged(sqlite_store, wide, reasons=(UNDERFLOW,))
    assert outcome == "worse"
    assert sentence.startswith(
        "fp16 is worse than fp32 by 82% in loss, starting in head at step 300, because head lost"
    )
    assert any(
        "by itself the difference is within the noise of one run each (±157%)" in each for each in verdict.limits
    )
    likely = replace(UNDERFLOW, certainty="likely")
    better, unpaired = replace(wide, difference=Estimate(value=-0.82)), replace(wide, noise="repeats")
    for quality, reasons in ((wide, (likely,)), (wide, ()), (better, (UNDERFLOW,)), (unpaired, (UNDERFLOW,))):
        assert _judged(sqlite_store, quality, reasons=reasons)[2] == "equal"


def test_layers_that_differ_alone_are_no_fault(sqlite_store: Store) -> None:
    """They are mentioned as a difference."""
    numerics = replace(NUMERICS, first_step=50, first_layer="body.weight")
    _, sentence, outcome = _judged(sqlite_store, numerics=numerics)
    assert outcome == "equal"
    assert "gradients differ in body from step 50 on, which does not make it worse" in sentence
    # Where the metric says nothing, neither does it say that they do no harm.
    _, sentence, outcome = _judged(sqlite_store, numerics=numerics, items=(BATCH,))
    assert outcome == "unknown"
    assert "gradients differ in body from step 50 on" in sentence
    assert "does not make it worse" not in sentence


def test_a_baseline_that_ends_as_no_number_is_told_with_its_step(sqlite_store: Store) -> None:
    """Better than NaN is no merit: the sentence says what it is better than."""
    for run_id, first_bad in (("a", 60), ("b", 200)):
        writer = RunWriter(sqlite_store, run_id, name=run_id)
        writer.points("loss", np.arange(200), np.where(np.arange(200) < first_bad, 1.0, np.nan))
        writer.end()
        writer.commit()
    views = Views(sqlite_store)
    _, sentence, outcome = judge(Comparison([view for run_id in "ab" if (view := views.get(run_id))]))
    assert outcome == "better"
    assert sentence.startswith("b is better than a: the baseline's loss is NaN from step 60")


def test_long_names_of_many_runs_leave_a_sentence_that_can_be_read(sqlite_store: Store) -> None:
    """Shortened, and told apart by letters where they then are the same."""
    for at in range(3):
        writer = RunWriter(sqlite_store, f"r{at}", name=f"{'n' * 100}{at}{'n' * 80}")
        writer.points("loss", np.arange(50), 1.0)
        writer.end()
        writer.commit()
    views = Views(sqlite_store)
    _, sentence, _ = judge(Comparison([view for at in range(3) if (view := views.get(f"r{at}"))]))
    assert len(sentence) < 600
    assert all(f"({letter})" in sentence for letter in "ABC")


def test_a_live_pair_is_told_as_so_far(sqlite_store: Store) -> None:
    """In the sentence and among the limits."""
    verdict, sentence, _ = _judged(sqlite_store, live=True)
    assert sentence.startswith("So far: fp16 is equal")
    assert any("still training" in limit for limit in verdict.limits)


def test_skips_speed_and_length_are_not_passed_over_where_no_cause_is_known(sqlite_store: Store) -> None:
    """Skipped steps are no steps of which nothing was withheld; in the same time a slower run is behind for that alone;
    how much of two runs is compared is among the limits."""
    writer = RunWriter(sqlite_store, "b", name="fp16")
    writer.points("loss", np.arange(20), 1.0)
    for step in (3, 4):
        writer.skip(step, "settling")
    writer.end()
    writer.commit()
    steps = _item("steps", "Steps done", "20 against 400: the first 20 are compared")
    verdict, sentence, _ = _judged(sqlite_store, WORSE, items=(steps,))
    assert "no layer parts before that, and but for 2 skipped steps nothing was withheld or lost" in sentence
    assert "steps done: 20 against 400: the first 20 are compared" in verdict.limits
    slow = replace(COST, speedup=Estimate(value=0.5, low=0.45, high=0.55))
    _, sentence, _ = _judged(sqlite_store, WORSE, cost=slow, align="time")
    assert "likely because it is slower: 0.5× (0.45 to 0.55) the work in the same time" in sentence


def test_what_was_not_recorded_is_among_the_limits(sqlite_store: Store) -> None:
    """An unknown thing that could confound quality is no confounder, and is named."""
    unknown = _item("data_order", "Data order", "not recorded", "quality", state="unknown")
    verdict, _, outcome = _judged(sqlite_store, items=(unknown,))
    assert outcome == "equal"
    assert "not recorded of both: data order" in verdict.limits


def test_a_better_run_says_what_is_wrong_with_the_baseline(recordings: Recordings) -> None:
    """FP32 against an FP16 run with a layer that underflows: the same mechanism as the other way round, of the
    baseline; where neither has a fault nothing is said."""
    (verdict,), sentence, outcome = judge(Comparison(recordings.views("fp16_underflow", "fp32")))
    (other,), _, _ = judge(Comparison(recordings.views("fp32", "fp16_underflow")))
    assert (outcome, other.outcome) == ("better", "worse")
    assert verdict.reasons[0] == replace(other.reasons[0], is_of_baseline=True)
    assert f"because in fp16 {other.reasons[0].text}" in sentence
    assert verdict.layer.startswith("narrow")
    assert not any(reason.is_of_baseline for reason in other.reasons)


def test_a_difference_beside_nothing_is_told_as_a_number(sqlite_store: Store) -> None:
    """Of a baseline whose level is next to nothing, no thousands of percent."""
    found = replace(WORSE, difference=Estimate(value=4_000.0), absolute=0.0499, noise_absolute=0.002)
    verdict, sentence, _ = _judged(sqlite_store, found)
    assert "is worse than fp32 by 0.0499 in loss" in sentence
    assert any("next to nothing" in limit for limit in verdict.limits)
    _, sentence, _ = _judged(sqlite_store, replace(found, outcome="equal", absolute=-0.0499))
    assert "loss -0.0499, noise ±0.002" in sentence
