"""Samples that are held back: nothing that is told changes by it, and most of the work goes."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from unittest import mock

import numpy as np
import pytest
from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.aggregations.base import Shape
from halfscope_server.alerts.node import Node
from halfscope_server.alerts.rule import Rule, Span
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.records import Records, Row, cut, evaluate, values, whole
from tests.server.alerts import brute
from tests.server.alerts.test_evaluator import _expected, _same, _told

WAITING = sorted(kind.id for kind in aggregations().values() if kind.reach is not None)


def _records(losses: Iterable[float], attempt: int = 0) -> Records:
    steps = enumerate(losses)
    return Records(
        [Row(step, step * 10_000, values({"opt.steps": float(step), "loss": float(loss)})) for step, loss in steps],
        attempt=attempt,
    )


@st.composite
def mostly_quiet(draw: st.DrawFn) -> list[Records]:
    """Values around 2 in eighths, with a few stretches far from that, holes, clocks that go back and a restart."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    found = []
    for attempt in range(draw(st.sampled_from([1, 1, 2]))):
        losses = 2.0 + rng.integers(-2, 3, draw(st.integers(1, 400))) / 8
        for _ in range(draw(st.integers(0, 4))):
            at = int(rng.integers(0, losses.size))
            losses[at : at + int(rng.integers(1, 30))] = float(rng.choice([8.0, -4.0, math.nan, math.inf]))
        records = _records(losses, attempt)
        records.rows = [row for row in records.rows if rng.random() < 0.95 or row is records.rows[0]]
        for row in records.rows:
            row.time_us += attempt * 100_000_000 - int(rng.choice([0, 0, 0, 40_000]))
        found.append(records)
    return found


@st.composite
def seldom(draw: st.DrawFn) -> Rule:
    """A rule that what is usual does not concern, in steps or in seconds."""
    above = draw(st.booleans())
    aggregation = draw(st.sampled_from(WAITING))
    window = draw(st.sampled_from([1, 2, 7, 40, 150]))
    level = draw(st.sampled_from([2.25, 2.3, 2.5, 4.0])) if above else draw(st.sampled_from([1.75, 1.7, 1.5, 0.0]))
    if aggregation in ("sum", "change"):
        level = {"sum": level * window, "change": 0.6 if above else -0.6}[aggregation]
    # Of a clock that stands still a quantile takes the first sample of each cell.
    is_by_time = draw(st.booleans()) and aggregation != "quantile"
    return Rule(
        id="r",
        name="r",
        metric="loss",
        aggregation=aggregation,
        argument=draw(st.sampled_from([0.0, 0.1, 0.5, 0.9])) if aggregation == "quantile" else None,
        window=Span(seconds=window / 100) if is_by_time else Span(steps=window),
        comparison=draw(st.sampled_from([">", ">="] if above else ["<", "<="])),
        threshold=level / 0.01 if is_by_time and aggregation == "rate" else level,
        hold=Span(steps=draw(st.sampled_from([0, 3]))),
        keep_firing=Span(steps=draw(st.sampled_from([0, 3, 30]))),
    )


@settings(max_examples=25)
@given(mostly_quiet(), st.lists(seldom(), min_size=1, max_size=3), st.integers(0, 2**32 - 1))
def test_what_is_held_back_tells_what_a_plain_reading_tells(
    records: list[Records], several: list[Rule], seed: int
) -> None:
    """Seldom anything happens, in small pieces, with restarts in between: the same episodes, evidence included."""
    rng = random.Random(seed)
    rules = [rule.model_copy(update={"id": f"r{at}"}) for at, rule in enumerate(several)]
    found = evaluate(cut(records, rng, longest=12), rules)
    for rule in rules:
        own = [episode for episode in found if episode.rule_id == rule.id]
        _same(_told(own), _expected(brute.episodes(records, rule)))
    assert evaluate(cut(records, rng, longest=30), rules, restart=rng) == found
    assert evaluate(whole(records), rules) == found


def test_nothing_is_worked_out_while_nothing_could_come_of_it() -> None:
    """Of 6,000 quiet steps in pieces of ten only every hundredth piece is; what follows a spike is, until it has left
    the longest window."""
    rng = np.random.default_rng(0)
    losses = rng.normal(2.0, 0.05, 6_000)
    losses[3_005] = 2.8
    shapes = [("mean", 100), ("max", 50), ("quantile", 200), ("change", 20), ("last", 1)]
    rules = [
        Rule(id=name, name=name, metric="loss", aggregation=name, window=Span(steps=steps), threshold=2.7)
        for name, steps in shapes
    ]
    records = _records(losses)
    pieces = [[records.update(at, at + 10)] for at in range(0, 6_000, 10)]
    fed: list[tuple[int, int]] = []
    feed = Node.feed

    def counted(self: Node, step: np.ndarray, *others: object) -> object:
        fed.append((int(step[0]), int(step[-1])))
        return feed(self, step, *others)  # type: ignore[arg-type]

    with mock.patch.object(Node, "feed", counted):
        found = evaluate(pieces, rules)
    # The mean of 100 is not moved so far; of the others each fires in its own window.
    assert [(e.rule_id, e.fired_step) for e in found] == [("last", 3005), ("max", 3005)]
    awake = {span for span in fed if 3_000 <= span[1] < 3_300}
    assert {last for _, last in awake} >= set(range(3_009, 3_200, 10))
    asleep = {span for span in fed if span not in awake}
    assert len(asleep) < 600 / 25
    assert all(last - first > 50 for first, last in asleep if last < 5_900)


@pytest.mark.parametrize("name", WAITING)
@pytest.mark.parametrize("by_time", [False, True])
def test_no_number_lies_beyond_its_reach(name: str, by_time: bool) -> None:
    """What an aggregation says of a window by its smallest and largest value holds for what it makes of it, to the
    last bit."""
    rng = np.random.default_rng(1)
    kind = aggregations()[name]
    assert kind.reach is not None
    for window in (1, 20, 400):
        for level in (0.0, 1e-12, 0.1, -3.7, 1e12):
            value = level + rng.choice([0.0, 1e-3, 1.0]) * rng.normal(size=900)
            key = np.cumsum(rng.integers(1, 3, 900))
            shape = Shape(window=window, by_time=by_time, argument=float(rng.choice([0.0, 0.3, 1.0])))
            found = kind.make(shape).feed(key, value[:, None])[:, 0]
            for at in range(0, 900, 31):
                # A quantile may be one of a window that ended a twentieth before.
                inside = value[: at + 1][key[: at + 1] > key[at] - window - window // 20]
                low, high = kind.reach(shape, float(inside.min()), float(inside.max()))
                assert low <= found[at] <= high, (window, level, at)
