"""A second judge, of whole histories and one step at a time: what the incremental one must agree with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from halfscope_server.ranks.judge import NUM_AGREED

History = Mapping[int, Mapping[str, Sequence[float]]]
"""Of each rank and series the value of every step that it made."""
Told = tuple[str, int, tuple[int, ...], tuple[float, ...], float]
"""Fact, first step, ranks, their values, the others'."""


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def expected_value(values: Sequence[float]) -> float:
    """What most have; of a tie, what came first."""
    best, most = values[0], 0
    for candidate in values:
        count = sum(same(candidate, other) for other in values)
        if count > most:
            best, most = candidate, count
    return best


def partings(history: History, words: Mapping[str, str]) -> list[Told]:
    """Every parting of every fact, by fact and step."""
    found: list[Told] = []
    for series, fact in words.items():
        agreed = NUM_AGREED
        for step in range(max(len(rank[series]) for rank in history.values())):
            told = {
                rank: values[series][step] for rank, values in sorted(history.items()) if step < len(values[series])
            }
            if len(told) < 2:
                continue
            most = expected_value(list(told.values()))
            apart = {rank: value for rank, value in told.items() if not same(value, most)}
            if not apart:
                agreed += 1
                continue
            if agreed >= NUM_AGREED:
                found.append((fact, step, tuple(apart), tuple(apart.values()), most))
            agreed = 0
    return sorted(found, key=lambda one: (one[1], one[0]))


def stretches(history: History, words: Mapping[str, str]) -> dict[str, list[tuple[int, int]]]:
    """First and last step of each of them, by fact."""
    found: dict[str, list[tuple[int, int]]] = {}
    begun = {(fact, step) for fact, step, *_ in partings(history, words)}
    for series, fact in words.items():
        for step in range(max(len(rank[series]) for rank in history.values())):
            told = [values[series][step] for values in history.values() if step < len(values[series])]
            if all(same(value, told[0]) for value in told):
                continue
            own = found.setdefault(fact, [])
            own.append((step, step) if (fact, step) in begun else (own.pop()[0], step))
    return found
