"""Where a rank stands, seen by another thread than the one that trains."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

from halfscope.instrument.standstill import STANDING_S, Standstill
from halfscope.record.clock import StepClock


class Rows:
    """Takes the rows that are told."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.told: list[tuple[int, str, float]] = []

    def declare(self, name: str, *, labels: dict[str, str], **_: object) -> int:
        assert name == "rank.standing_s"
        self.names.append(labels["phase"])
        return len(self.names) - 1

    def row(self, step: int, _time_us: int, values: Any) -> None:
        ((sid, value),) = values
        self.told.append((step, self.names[sid], value))


def reduction(*, is_complete: bool, ended: list[int | None], began: object = 1) -> SimpleNamespace:
    buckets = [SimpleNamespace(began=began, ended=end) for end in ended]
    return SimpleNamespace(is_complete=is_complete, buckets=buckets)


def test_a_rank_tells_each_place_once_and_none_before_its_first_step() -> None:
    """Between two attempts, in one, and in a reduction whose buckets are all ready and not all over."""
    rows = Rows()
    training: Any = SimpleNamespace(
        clock=StepClock(7, lambda step: None), attempt=SimpleNamespace(reductions=()), backward_seen=False
    )
    standstill = Standstill(rows, training, 7)  # type: ignore[arg-type]

    now_s = 100.0

    def stand(seconds: float) -> list[tuple[int, str, float]]:
        nonlocal now_s
        before = len(rows.told)
        until_s = now_s + seconds
        while now_s < until_s:
            now_s += 0.0625
            standstill.look(now_s)
        return rows.told[before:]

    assert stand(60) == [], "the first step may take minutes"
    training.clock.begin()
    training.clock.complete()
    assert stand(STANDING_S) == []
    assert stand(60) == [(7, "between", STANDING_S)]
    training.backward_seen = True
    assert stand(60) == [(7, "attempt", STANDING_S)]
    training.backward_seen = False
    training.clock.begin()
    training.attempt = SimpleNamespace(reductions=(reduction(is_complete=False, ended=[2, None]),))
    assert stand(60) == [], "as before: it is in its own backward pass"
    training.attempt = SimpleNamespace(reductions=(reduction(is_complete=True, ended=[2, None]),))
    assert stand(60) == [(7, "reduction", STANDING_S)]
    training.attempt = SimpleNamespace(reductions=(reduction(is_complete=True, ended=[2, 3]),))
    training.clock.complete()
    for step in range(9, 200):
        training.clock.begin()
        assert stand(STANDING_S - 0.125) == []
        training.clock.complete()
        assert training.clock.step == step
    assert stand(60) == [(199, "between", STANDING_S)]
    training.backward_seen = True
    assert stand(60) == [(199, "attempt", STANDING_S)]
    training.backward_seen = False
    assert stand(60) == [], "of this place it is known"
    assert all(math.isfinite(value) for _, _, value in rows.told)


def test_whether_a_reduction_on_a_device_is_over_is_not_claimed() -> None:
    """Its times are events of the device, which this thread must not ask."""
    rows = Rows()
    training: Any = SimpleNamespace(
        clock=StepClock(0, lambda step: None),
        attempt=SimpleNamespace(reductions=(reduction(is_complete=True, ended=[None], began=object()),)),
        backward_seen=False,
    )
    training.clock.step = 5
    training.clock.begin()
    standstill = Standstill(rows, training, 0)  # type: ignore[arg-type]
    standstill.look(0.0)
    standstill.look(10.0)
    assert rows.told == [(4, "attempt", 10.0)]
