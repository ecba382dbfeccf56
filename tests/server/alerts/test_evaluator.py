"""Evaluation of rules on a run: the same episodes for any cut of the data, and those that a plain reading gives."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest
from halfscope_server.alerts.rule import Rule, Scope, Span
from halfscope_server.store.types import EpisodeRow
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.records import (
    Records,
    Row,
    cut,
    evaluate,
    values,
    whole,
)
from tests.server.alerts import brute

AGGREGATIONS = (
    "last", "mean", "max", "min", "sum", "rate", "quantile", "change", "below_best", "above_best", "zscore",
)  # fmt: skip
METRICS = ("loss", "grad.norm", "val/accuracy", "nonfinite_rate", "nonfinite_rate.caught_unexpected")


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    """A rule about one of the series that `streams` makes; thresholds lie between the values."""
    metric = draw(st.sampled_from(METRICS))
    is_flag = metric.startswith("nonfinite")
    aggregation = draw(st.sampled_from(AGGREGATIONS))
    level = draw(st.integers(-3, 8)) / 4 + 0.1 if not is_flag else draw(st.sampled_from([0.0, 0.07, 0.33, 1.5]))
    comparison = draw(st.sampled_from([">", ">=", "<", "<="]))
    gap = draw(st.sampled_from([None, 0.0, 0.5]))
    sign = -1 if comparison in (">", ">=") else 1

    def span(longest: int) -> Span:
        return draw(
            st.one_of(
                st.just(Span()),
                st.builds(Span, steps=st.integers(0, longest)),
                st.builds(Span, seconds=st.integers(0, longest).map(lambda n: n / 100)),
            )
        )

    window = draw(
        st.one_of(
            st.builds(Span, steps=st.sampled_from([1, 2, 7, 20, 45, 100])),
            st.builds(Span, seconds=st.sampled_from([0.02, 0.1, 0.5])),
        )
    )
    return Rule(
        id="r",
        name="r",
        metric=metric,
        aggregation=aggregation,
        argument=draw(st.sampled_from([0.0, 0.25, 0.5, 0.9])) if aggregation == "quantile" else None,
        window=window,
        comparison=comparison,  # type: ignore[arg-type]
        threshold=level,
        clear=None if gap is None else level + sign * gap,
        hold=span(30),
        keep_firing=span(30),
        group_by=draw(st.sampled_from([["run"], ["run", "rank"]])),
        scope=Scope(ranks=draw(st.sampled_from([[], [], [1]]))),
    )


@st.composite
def streams(draw: st.DrawFn, longest: int = 260) -> list[Records]:
    """A run of one or two ranks and one or two starts."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    num_ranks, num_attempts = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (1, 2), (2, 2)]))
    found = []
    first = 0
    for attempt in range(num_attempts):
        length = draw(st.integers(1, longest))
        for rank in range(num_ranks):
            ended = draw(st.sampled_from(["", "finished", "killed"]))
            found.append(Records(_rows(rng, first, length, attempt), rank=rank, attempt=attempt, ended=ended))
        first = draw(st.integers(0, first + length))
    return found


def _rows(rng: np.random.Generator, first: int, length: int, attempt: int) -> list[Row]:
    level = rng.integers(-4, 12, length // 10 + 1) / 4
    rows = []
    for at in range(length):
        row = Row(first + at, attempt * 100_000_000 + at * 10_000 + int(rng.integers(0, 5_000)))
        row.values = values({"opt.steps": float(at)})
        loss = level[at // 10] + rng.integers(-2, 3) / 4
        kind = rng.random()
        if kind < 0.03:
            loss = float(rng.choice([math.nan, math.inf, -math.inf]))
            row.events.append(("loss_nonfinite", "warning", {"caught": bool(rng.random() < 0.5)}))
        elif kind < 0.1:
            told = str(rng.choice(["settling", "probe", "single", "streak"]))
            row.events.append(("skip", "info", {"class": told}))
        elif kind < 0.12:
            row.events.append(("nonfinite_applied", "critical", {}))
        row.values |= values({"loss": float(loss)})
        for optimizer in ("d", "g"):
            if rng.random() < 0.8:
                row.values["grad.norm", (("optimizer", optimizer),)] = float(rng.integers(0, 8) / 4)
        if at % 7 == 3:
            row.values |= values({"val/accuracy": float(rng.integers(1, 9) / 8)})
        rows.append(row)
    return rows


def _told(episodes: list[EpisodeRow]) -> list[tuple[Any, ...]]:
    return sorted(
        (e.attempt, e.first_step, e.fired_step, e.resolved_step, e.last_step, e.value, e.worst, e.resolution)
        for e in episodes
    )


def _expected(episodes: list[brute.Episode]) -> list[tuple[Any, ...]]:
    return sorted((e.attempt, e.first, e.fired, e.resolved, e.last, e.value, e.worst, e.resolution) for e in episodes)


def _same(found: list[tuple[Any, ...]], expected: list[tuple[Any, ...]]) -> None:
    assert [item[:5] + item[7:] for item in found] == [item[:5] + item[7:] for item in expected]
    for one, other in zip(found, expected, strict=True):
        assert one[5:7] == pytest.approx(other[5:7], rel=1e-9, abs=1e-12)


@given(streams(), rules())
def test_the_engine_agrees_with_a_plain_reading(records: list[Records], rule: Rule) -> None:
    """Random rules on random runs: the same episodes at the same steps with the same values."""
    _same(_told(evaluate(whole(records), [rule])), _expected(brute.episodes(records, rule)))


@given(streams(), st.lists(rules(), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_cut_and_any_restart_give_the_same_episodes(
    records: list[Records], several: list[Rule], rng: random.Random
) -> None:
    """Live, replayed at once, cut anywhere and restarted anywhere: equal rows, ids and evidence included."""
    some = [rule.model_copy(update={"id": f"r{at}"}) for at, rule in enumerate(several)]
    at_once = evaluate(whole(records), some)
    assert evaluate(cut(records, rng, longest=1), some) == at_once
    assert evaluate(cut(records, rng), some, restart=rng) == at_once
