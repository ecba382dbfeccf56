"""Derived metrics: a contract for all there are, and the numbers of those that are computed over windows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from halfscope_server.alerts.block import Block, Marks
from halfscope_server.alerts.metrics import find, metrics
from halfscope_server.alerts.rule import Rule
from halfscope_server.alerts.types import Column
from halfscope_server.store.types import SKIP_CLASSES

from tests.helpers.records import Records, cut, evaluate, run_row, series_row, whole
from tests.helpers.trainings import Training


@pytest.fixture(scope="module")
def training() -> Records:
    """Two optimizers under a scale that settles, with a collapse in the middle and NaN here and there."""
    records = Training(optimizers=("d", "g"), num_steps=700, init_scale=2.0**20, seed=2).records()
    for row in records.rows:
        if 300 <= row.step < 312:
            row.events.append(("skip", "info", {"class": "streak"}))
            row.events.append(("loss_nonfinite", "warning", {"caught": True}))
            row.values["amp.skipped", (("optimizer", "d"),)] = 1.0
            row.values["amp.scale_next", ()] = row.values["amp.scale", ()] / 2
        if row.step in (400, 450):
            row.events.append(("nonfinite_applied", "critical", {}))
            row.events.append(("input_nonfinite", "critical", {}))
        if row.step == 500:
            row.events.append(("lost", "warning", {}))
    return records


def test_every_metric_is_the_same_for_any_cut(training: Records) -> None:
    """A contract of all there are, those that are added later too: saved, loaded and cut anywhere."""
    rules = [
        Rule(id=f"{at}-{threshold:.0f}", name=name, metric=name, threshold=threshold, group_by=["run"])
        for at, name in enumerate(metrics())
        for threshold in (-0.5, 0.0, 3.0)
    ]
    at_once = evaluate(whole([training]), rules)
    rng = random.Random(4)
    assert evaluate(cut([training], rng, longest=60), rules, restart=rng) == at_once
    assert {episode.metric for episode in at_once} == set(metrics()), "each gave something to judge"


def test_every_metric_says_what_it_is() -> None:
    """A title for sentences, a text for people."""
    for name, metric in metrics().items():
        assert metric.id == name
        assert metric.title
        assert metric.text.endswith(".")
        assert find(name) is metric


def _values(name: str, **columns: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    metric = find(name)
    assert metric is not None
    parts = [
        Column(series=series_row(series.replace("__", ".")), step=step, time_us=step * 1000, value=value)
        for series, (step, value) in columns.items()
    ]
    (samples,) = metric.make({}).feed(Block(run=run_row(), columns=parts)).values()  # type: ignore[union-attr]  # of series
    return samples.value


def test_oscillation_is_as_it_is_defined() -> None:
    """(95th - 5th percentile of the loss less its running median) / (2 x that median), over 200 steps, in float64."""
    rng = np.random.default_rng(3)
    steps = np.arange(900)
    loss = 2.0 + 0.3 * np.sin(steps / 9) + rng.normal(0.0, 0.05, 900)
    found = _values("loss_oscillation", loss=(steps, loss))
    assert np.isnan(found[:398]).all()
    marks = steps // 20 * 20  # percentiles are found anew every 20 steps
    medians = np.array([np.median(loss[max(0, at - 199) : at + 1]) for at in marks])
    for at in (400, 640, 880):
        rest = loss[at - 199 : at + 1] - medians[at - 199 : at + 1]
        low, high = np.quantile(rest, [0.05, 0.95])
        assert found[at] == pytest.approx((high - low) / (2 * medians[at]))


def test_smoothed_oscillation_is_as_it_is_defined() -> None:
    """The smaller side of the 5th and 95th percentile beyond noise, where the loss changed sides three times."""
    rng = np.random.default_rng(3)
    steps = np.arange(1600)
    loss = (
        2.0 + np.where(steps < 900, 0.5, 0.02) * np.sin(steps / 12) - 0.8 * (steps >= 1200) + rng.normal(0, 0.1, 1600)
    )
    found = _values("loss_oscillation.smoothed", loss=(steps, loss))
    assert np.isnan(found[:398]).all()
    mean = np.array([loss[max(0, at - 19) : at + 1].mean() for at in steps])
    median = np.array([np.median(mean[max(0, at - 199) : at + 1]) for at in steps // 20 * 20])
    rest, turns, side = mean - median, np.zeros(1600), 0.0
    jumps = np.diff(loss, prepend=np.nan) ** 2
    for at in range(199, 1600):
        if abs(rest[at]) > 0.05 * median[at]:
            turns[at] = side * rest[at] < 0
            side = rest[at]
    for at in range(400, 1600, 20):
        low, high = np.quantile(rest[at - 199 : at + 1], [0.05, 0.95])
        is_one = turns[at - 199 : at + 1].sum() >= 3
        noise = 1.3 * 1.645 * np.sqrt(np.nanmean(jumps[at - 199 : at + 1]) / 2 / 20)
        swing = np.sqrt(max(0.0, max(0.0, min(high, -low)) ** 2 - noise**2))
        assert found[at] == pytest.approx(swing / median[at] if is_one else 0.0)
    assert found[880] > 0.15
    assert not found[1120:].any()


def test_a_loss_on_both_sides_of_zero_has_no_smoothed_oscillation() -> None:
    """Until the last 200 steps are all on one side."""
    steps = np.arange(1200)
    loss = np.where(steps < 500, -1.0, 1.0) * (1 + 0.3 * np.sign(np.sin(steps / 8)))
    found = _values("loss_oscillation.smoothed", loss=(steps, loss))
    assert (found[400:500] > 0.15).all()
    assert np.isnan(found[500:699]).all()
    assert np.isfinite(found[699:]).all()


def test_volatility_is_as_it_is_defined() -> None:
    """Interquartile range by median of the gradient norm over 200 steps."""
    norm = np.random.default_rng(3).lognormal(0.0, 0.5, 500)
    found = _values("grad_norm_volatility", grad__norm=(np.arange(500), norm))
    assert np.isnan(found[:199]).all()
    low, middle, high = np.quantile(norm[201:401], [0.25, 0.5, 0.75])
    assert found[400] == pytest.approx((high - low) / middle)


def test_a_scale_is_held_against_the_floor_of_its_batch() -> None:
    """By the largest batch so far; a run that tells no batch size has the lowest floor."""
    steps = np.arange(6)
    scale = np.full(6, 2.0**9)
    sizes = np.array([64, 255, 256, 2048, 2049, 8])
    step_s = np.full(6, 0.125)
    found = _values(
        "scale_over_floor", amp__scale=(steps, scale), time__step_s=(steps, step_s),
        throughput__samples_per_s=(steps, sizes / step_s),
    )  # fmt: skip
    assert found.tolist() == [5, 5, 1, 1, -1, -1]
    assert _values("scale_over_floor", amp__scale=(steps, scale)).tolist() == [5] * 6


def test_a_fall_of_the_scale_is_what_is_lost_of_its_highest() -> None:
    """A sawtooth of trials and of hard batches is one doubling deep; settling and values set by hand are no fall."""
    metric = find("scale_fall")
    assert metric is not None
    used, left, events = [], [], []
    scale, clean = 2.0**20, 0
    for step in range(1200):
        used.append(scale)
        skipped = scale >= 2.0**17 or step in (700, 702, 704)
        if skipped:
            events.append((step, "settling" if step < 10 else "single" if step in (700, 702, 704) else "probe"))
        clean = 0 if skipped else clean + 1
        scale = scale / 2 if skipped else scale * 2 if clean % 20 == 0 else scale
        left.append(2.0**10 if step == 1000 else scale)  # by hand
        scale = left[-1]
    steps, classes = np.array([step for step, _ in events]), [SKIP_CLASSES.index(name) for _, name in events]
    marks = {"skip": Marks(step=steps, time_us=steps * 1000, mark=np.array(classes))}
    at = np.arange(1200)
    columns = [
        Column(series=series_row(name), step=at, time_us=at, value=np.array(value))
        for name, value in (("amp.scale", used), ("amp.scale_next", left))
    ]
    (samples,) = metric.make({}).feed(Block(run=run_row(), columns=columns, marks=marks)).values()  # type: ignore[union-attr]  # of series
    assert samples.value[:600].max() == 1
    assert not samples.value[:20].any()
    exponents, behind = np.log2(used), np.log2(left)
    for step in range(210, 1000):
        net = exponents[step - 199 : step + 1].max() - behind[step]
        assert samples.value[step] == max(0.0, net)
    assert samples.value[705] == 4  # three skips, and the trial before
    assert samples.value[1000:].max() == 1


def test_an_input_is_held_against_fp16_only_where_fp16_computes() -> None:
    """65,504 is all of it."""
    steps = np.arange(2)
    column = Column(
        series=series_row("input.absmax"), step=steps, time_us=steps, value=np.array([655.04, 131008.0])
    )  # fmt: skip
    metric = find("input_of_fp16")
    assert metric is not None
    for precision, expected in (("FP16-AMP", [0.01, 2.0]), ("BF16-AMP", None), ("FP32", None)):
        found = metric.make({}).feed(Block(run=run_row(facts={"precision": precision}), columns=[column]))
        assert isinstance(found, dict)
        assert (found[()].value.tolist() if found else None) == expected
