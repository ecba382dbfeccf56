"""Presets: calm on healthy trainings, and there when something is wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halfscope_server.alerts.presets import find, presets
from halfscope_server.alerts.validation import check

from tests.helpers.journals import as_updates, kept
from tests.helpers.records import Records, Row, evaluate, run_row, server_event, values, whole
from tests.helpers.trainings import Training

RULES = [preset.rule for preset in presets()]
RECORDED = Path(__file__).parent / "recorded"
"""gan.zst: 2,000 steps of a small GAN on a CPU under FP16 autocast, two optimizers and one GradScaler with a growth
interval of 200, each layer sketched every 25 steps; as the agent wrote it."""


def test_every_preset_is_a_rule_without_problems() -> None:
    """Each can be taken over as it is, says why, and has an id and a title of its own."""
    for preset in presets():
        assert check(preset.rule) == []
        assert preset.rule.reason
        assert preset.rule.preset == preset.rule.id
        assert find(preset.rule.id) is preset
    assert len({preset.rule.id for preset in presets()}) == len({preset.title for preset in presets()}) == len(RULES)


@pytest.mark.parametrize(
    "training",
    [
        pytest.param(Training(precision="FP32", num_steps=6_000), id="fp32"),
        pytest.param(Training(init_scale=2.0**20), id="fp16"),
        *(
            pytest.param(Training(num_steps=3_000, growth_interval=n), id=f"fp16-grows-every-{n}")
            for n in (20, 50, 100)
        ),
        pytest.param(Training(precision="BF16-AMP", num_steps=6_000), id="bf16"),
        pytest.param(Training(optimizers=("d", "g"), num_steps=6_000, seed=3), id="gan"),
    ],
)
def test_a_healthy_training_raises_nothing(training: Training) -> None:
    """Settling, probing, noise, validation pauses and a slow start are what healthy trainings are made of."""
    records = training.records()
    classes = [attributes["class"] for row in records.rows for kind, _, attributes in row.events if kind == "skip"]
    if training.precision == "FP16-AMP":
        assert classes.count("settling") >= 3
        assert classes.count("probe") >= 2
    groups = [[records.update(at, at + 500)] for at in range(0, len(records.rows), 500)]
    assert evaluate(groups, RULES, run=run_row(facts={"precision": training.precision})) == []


def test_a_recorded_gan_raises_nothing() -> None:
    """Two optimizers under one scaler, trained and recorded for real."""
    run, updates = as_updates(kept(RECORDED / "gan.zst"))
    assert run.facts["precision"] == "FP16-AMP"
    assert {event.kind for update in updates for event in update.events} >= {"skip", "scale_growth"}
    assert evaluate([[update] for update in updates], RULES, run=run) == []


def _steps(count: int, **series: float) -> list[Row]:
    return [Row(step, step * 20_000, values({"opt.steps": float(step), **series})) for step in range(count)]


def _fired(rows: list[Row], *preset_ids: str, ended: str = "") -> list[tuple[str, int, int | None, int | None]]:
    rules = [rule for rule in RULES if not preset_ids or rule.id in preset_ids]
    episodes = evaluate(whole([Records(rows, ended=ended)]), rules)
    return [(e.rule_id, e.first_step, e.fired_step, e.resolved_step) for e in episodes]


def test_one_nonfinite_step_that_was_applied_is_critical_at_once() -> None:
    """It fires at that very step, and ends 50 clean steps later."""
    rows = _steps(200, loss=1.0)
    rows[70].events.append(("nonfinite_applied", "critical", {}))
    assert _fired(rows) == [("nonfinite-applied", 70, 70, 121)]


def test_the_third_unexpected_skip_of_200_steps_is_too_many() -> None:
    """Two are under 1% of them, three are over; those of a scale that settles or probes are not counted."""
    rows = _steps(600, loss=1.0)
    for step, told in ((20, "settling"), (21, "settling"), (100, "probe"), (200, "single"), (300, "single")):
        rows[step].events.append(("skip", "info", {"class": told}))
    assert _fired(rows, "nonfinite-caught") == []
    rows[399].events.append(("skip", "info", {"class": "single"}))
    assert _fired(rows, "nonfinite-caught") == [("nonfinite-caught", 399, 399, 500)]


def test_eight_skips_in_a_row_are_critical_unless_the_scale_settles() -> None:
    """At the eighth; sixteen settling ones at the start say nothing."""
    rows = _steps(300, loss=1.0)
    for row in rows:
        told = "settling" if row.step < 16 else "streak" if 100 <= row.step < 120 else ""
        row.values |= values({"amp.skipped": float(bool(told))})
        if told:
            row.events.append(("skip", "info", {"class": told}))
    assert _fired(rows, "skip-streak") == [("skip-streak", 107, 107, 120)]


def test_a_scale_below_one_and_one_below_the_floor_of_its_batch() -> None:
    """The first at the step whose update took it there; the second after 200 steps, by the batch size that was seen."""
    rows = _steps(1000, loss=1.0)
    for row in rows:
        scale = 2.0**9 if row.step < 300 else 2.0**7 if row.step < 600 else 0.5
        after = 0.5 if row.step >= 599 else scale
        row.values |= values({"amp.scale": scale, "amp.scale_next": after})
        row.values |= values({"time.step_s": 0.02, "throughput.samples_per_s": 512 / 0.02})
    assert _fired(rows) == [("scale-below-floor", 300, 500, None), ("scale-below-one", 599, 599, None)]


def test_a_collapse_is_four_doublings_within_200_steps() -> None:
    """Halvings by probes and while settling are none of it."""
    rows = _steps(900, loss=1.0)
    scale, falls = 2.0**16, {0: "settling", 1: "settling", 2: "settling", 300: "probe", 500: "single", 550: "single"}
    falls |= {600: "single", 650: "single"}
    for row in rows:
        after = scale / 2 if row.step in falls else scale
        row.values |= values({"amp.scale": scale, "amp.scale_next": after})
        if row.step in falls:
            row.events.append(("skip", "info", {"class": falls[row.step]}))
        scale = after
    assert _fired(rows, "scale-collapsing") == [("scale-collapsing", 650, 650, 800)]


def test_a_vanished_gradient_and_a_lost_best() -> None:
    """Each after the stretch that its rule asks for, counted from where it began."""
    rows = _steps(2000)
    for row in rows:
        late = row.step >= 1000
        row.values |= values({"grad.norm": 1e-9 if late else 1.0})
        if row.step % 50 == 0:
            row.values |= values({"val/accuracy": 0.8 if late else 0.9 + row.step / 1e5})
    found = {rule: (first, fired) for rule, first, fired, _ in _fired(rows)}
    assert found == {
        "grad-norm-vanished": (1099, 1099),
        "metric-below-best": (1000, 1200),
    }


def test_no_gradient_of_a_loss_that_is_exactly_zero_is_nothing_amiss() -> None:
    """A hinge loss whose examples are all told apart; also where it is told every fifth step alone. Where it has a loss
    again, it is to have a gradient."""
    rows = _steps(1000)
    for row in rows:
        is_zero = 300 <= row.step < 700
        row.values |= values({"grad.norm": 0.0 if row.step >= 300 else 1.0})
        if row.step % 5 == 0:
            row.values |= values({"loss": 0.0 if is_zero else 1.0})
    assert _fired(rows[:700]) == []
    ((rule, _, fired, _),) = _fired(rows)
    assert (rule, fired) == ("grad-norm-vanished", 700)


def _paced(paces: list[float], num_samples: float = 64.0) -> list[Row]:
    """Steps of so many seconds each."""
    rows, now_s = [], 0.0
    for step, pace in enumerate(paces):
        now_s += pace
        rows.append(Row(step, int(now_s * 1e6), values({"throughput.samples_per_s": num_samples / pace})))
    return rows


@pytest.mark.parametrize("usual", [0.3, 20.0])
def test_a_run_that_stays_slower_is_told_after_five_minutes(usual: float) -> None:
    """Of a pace that falls by a quarter, whatever it was: from where half of the window's steps are slow, and for five
    minutes; by a tenth, or for four minutes, is nothing."""
    lasting = int(300 / usual) + 300
    begins = 2 * lasting  # what the slow steps are half of is slow as usual
    slow = [usual] * begins + [usual / 0.75] * lasting
    ((_, first, fired, resolved),) = _fired(_paced(slow), "throughput-drop")
    assert begins + 95 <= first <= begins + 115
    assert fired is not None
    assert 300 <= (fired - first) * usual / 0.75 < 300 + 2 * usual
    assert resolved is None
    assert _fired(_paced([usual] * begins + [usual / 0.9] * lasting), "throughput-drop") == []
    short = [usual] * begins + [usual / 0.5] * int(240 / (usual / 0.5)) + [usual] * lasting
    assert _fired(_paced(short), "throughput-drop") == []


@pytest.mark.parametrize("course", ["shared", "lengths", "evaluated", "saved", "cold", "restarted"])
def test_a_pace_that_varies_as_healthy_ones_do_is_no_drop(course: str) -> None:
    """Another job for a minute now and then, batches of two lengths, long evaluations and checkpoints at powers of two
    with slow steps behind them, a slow first thousand, a start on a cold machine."""
    rng = np.random.default_rng(8)
    pace = 0.1 * rng.lognormal(0.0, 0.1, 6_000)
    at = np.arange(pace.size)
    if course == "shared":
        pace[at % 2_000 > 1_600] *= 1.8
    elif course == "lengths":
        pace[rng.random(pace.size) < 0.42] *= 4
    elif course == "evaluated":
        pace[(at % 512 == 0) & (at > 0)] = 600.0
        pace[at % 512 < 60] *= 2
    elif course == "saved":
        pace[at % 64 == 0] = 5.0
    elif course == "cold":
        pace[:1_000] *= 3
    rows = _paced(pace.tolist())
    if course == "restarted":
        again = _paced(np.concatenate((pace[:15] * 30, pace)).tolist())
        records = [Records(rows, ended="killed"), Records(again, attempt=1)]
        assert evaluate(whole(records), [preset for preset in RULES if preset.id == "throughput-drop"]) == []
    assert _fired(rows, "throughput-drop") == []


def test_an_oscillating_loss_is_told_from_a_noisy_one() -> None:
    """A swing of 40% over 50 steps is one; noise of the same size from batch to batch is none."""
    noise = random.Random(3)
    noisy = [Row(s, s * 20_000, values({"loss": 1.0 + 0.4 * noise.uniform(-1, 1)})) for s in range(3000)]
    assert _fired(noisy, "loss-oscillation") == []
    for row in noisy:
        if row.step >= 1500:
            row.values |= values({"loss": 1.4 if row.step // 50 % 2 else 0.6})
    ((_, first, fired, _),) = _fired(noisy, "loss-oscillation")
    assert 1500 < first < 1700
    assert fired is not None
    assert first + 200 <= fired <= first + 210


@pytest.mark.parametrize(
    "loss",
    [
        pytest.param(lambda s: 1.0 if s < 1500 else 0.6, id="learning rate decayed"),
        pytest.param(lambda s: 0.6 if s < 1500 else 1.0, id="harder data"),
        pytest.param(lambda s: 1.0 - 0.4 * min(1.0, max(0.0, (s - 1500) / 150)), id="improves once"),
        pytest.param(lambda s: 1.0 + math.exp(-(s % 500) / 80), id="warm restarts"),
        pytest.param(lambda s: -0.01, id="around zero"),
        pytest.param(lambda s: 2.0 - s / 600, id="falls through zero"),
        pytest.param(lambda s: 0.3 * math.sin(s / 150), id="two players around zero"),
    ],
)
def test_a_loss_that_shifts_or_has_no_size_does_not_oscillate(loss: Callable[[int], float]) -> None:
    """Noise is on top of each."""
    noise = random.Random(5)
    rows = [Row(s, s * 20_000, values({"loss": loss(s) + noise.gauss(0.0, 0.05)})) for s in range(3000)]
    assert _fired(rows, "loss-oscillation") == []


@pytest.mark.parametrize("period", [40, 60, 90, 130])
def test_a_loss_that_swings_by_a_third_oscillates(period: int) -> None:
    """Around a level, with noise: until the end of the run."""
    noise = random.Random(5)
    rows = [
        Row(s, s * 20_000, values({"loss": 1.0 + 0.3 * math.sin(2 * math.pi * s / period) + noise.gauss(0.0, 0.05)}))
        for s in range(2000)
    ]
    ((_, first, fired, resolved),) = _fired(rows, "loss-oscillation")
    assert 398 <= first <= 400, "as soon as two windows are full"
    assert fired == first + 200
    assert resolved in (None, 1999)


@pytest.mark.parametrize("sigma", [0.5, 0.8, 1.2])
def test_heavy_noise_from_batch_to_batch_is_no_oscillation(sigma: float) -> None:
    """Lognormal, as losses of single examples are: its mean of 20 steps still strays by far more than 15%."""
    noise = random.Random(7)
    rows = [Row(s, s * 20_000, values({"loss": math.exp(noise.gauss(0.0, sigma))})) for s in range(4000)]
    assert _fired(rows, "loss-oscillation") == []


def test_updates_that_are_lost_are_told_by_the_agents_event() -> None:
    """From its step until the run is over: nobody tells that they arrive again."""
    rows = _steps(200, loss=1.0)
    rows[30].events = [("updates_lost", "warning", {"num_layers": 1, "shares": [0.9]})]
    ((_, first, fired, resolved),) = _fired(rows, "updates-lost")
    assert (first, fired) == (30, 30)
    assert resolved in (None, 199)


def test_silence_a_stall_and_lost_records_are_told_by_events() -> None:
    """Each from its event to the next row; a run that finishes raises nothing."""
    rows = _steps(20, loss=1.0)
    records = Records(rows)
    groups = [
        [records.update(0, 10)],
        [server_event("lost_contact", 9)],
        [server_event("contact_regained", 9), records.update(10, 15)],
        [server_event("stalled", 14)],
        [records.update(15, 20)],
    ]
    told = [(e.rule_id, e.fired_step, e.resolved_step, e.resolution) for e in evaluate(groups, RULES)]
    assert told == [("no-data", 9, 9, "cleared"), ("stall", 14, 15, "cleared")]
    assert _fired(_steps(20, loss=1.0), ended="finished") == []
    rows[5].events.append(("lost", "warning", {}))
    assert _fired(rows) == [("lost-data", 5, 5, None)]


def _end(outcome: str, **attributes: str) -> tuple[str, str, dict[str, str]]:
    return "run_ended", "info", {"outcome": outcome, **attributes}


@pytest.mark.parametrize(
    ("outcome", "attributes", "is_failure"),
    [
        ("exception", {"error_type": "RuntimeError", "message": "CUDA out of memory"}, True),
        ("exception", {"error_type": "SystemExit", "message": "1"}, True),
        ("exception", {"error_type": "SystemExit", "message": "0"}, False),
        ("exception", {"error_type": "KeyboardInterrupt", "message": ""}, False),
        ("finished", {}, False),
        ("superseded", {}, False),
    ],
)
def test_a_training_that_an_exception_ends_is_told(outcome: str, attributes: dict[str, str], is_failure: bool) -> None:
    """Fired at its last step and resolved by the same end; whoever finishes or stops it by hand has not failed."""
    rows = _steps(20, loss=1.0)
    rows.append(Row(20, 400_000, {}, [_end(outcome, **attributes)]))
    records = Records(rows, ended=outcome)
    found = evaluate(whole([records]), RULES)
    told = [(e.rule_id, e.severity, e.fired_step, e.resolved_step, e.resolution) for e in found]
    assert told == ([("run-failed", "critical", 20, 20, "run ended")] if is_failure else [])
    assert evaluate([[records.update(0, 20)], [records.update(20, 21)]], RULES) == found
    at_once = Records([Row(0, 0, {}, [_end(outcome, **attributes)])], ended=outcome)
    assert len(evaluate(whole([at_once]), RULES)) == is_failure


def test_a_killed_training_is_told_once_whatever_its_other_ranks_do() -> None:
    """The rank that goes on takes nothing back, also where it hangs; a new start does, and may fail once more."""
    killed, other = Records(_steps(20, loss=1.0), ended="killed"), Records(_steps(40, loss=1.0), rank=1)
    word = server_event("run_ended", 19, outcome="killed")

    def told(*groups: list[Any]) -> list[tuple[Any, ...]]:
        return [(e.attempt, e.state, e.fired_step, e.resolution) for e in evaluate(groups, RULES)]

    begin = [killed.update(0, 20), other.update(0, 20)]
    assert told([*begin, word]) == [(0, "firing", 19, "")]
    assert told([*begin, word], [other.update(20, 40)]) == [(0, "firing", 19, "")]
    other.ended = "killed"
    end = [other.update(20, 40), server_event("run_ended", 39, rank=1, outcome="killed")]
    assert told([*begin, word], end) == told([*begin, word], end, [end[1]]) == [(0, "resolved", 19, "run ended")]
    again = Records(_steps(10, loss=1.0), attempt=1)
    assert told([*begin, word], [again.update(0, 10)]) == [(0, "resolved", 19, "cleared")]
    assert told([*begin], [again.update(0, 10)], [word]) == []
    second = server_event("run_ended", 9, attempt=1, outcome="killed")
    again.ended = "killed"
    assert told([*begin, word], end, [again.update(0, 10), second]) == [
        (0, "resolved", 19, "run ended"),
        (1, "resolved", 9, "run ended"),
    ]
