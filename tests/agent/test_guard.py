"""The guard around every call of ours."""

from __future__ import annotations

import logging

import pytest
from halfscope.guard import Guard


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def guard(told: list[str]) -> Guard:
    return Guard(lambda probe, error: told.append(f"{probe}: {error}"))


def test_a_failure_is_swallowed_told_and_warned_of_once(
    guard: Guard, told: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """And the probe is not called again."""
    calls: list[int] = []

    def fails(value: int) -> None:
        calls.append(value)
        raise KeyError("gone")

    wrapped = guard.wrap("probe", fails)
    assert wrapped(1) is None
    assert wrapped(2) is None
    assert calls == [1]
    assert told == ["probe: 'gone'"]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]


def test_other_probes_go_on(guard: Guard) -> None:
    """One failing part does not take others with it."""
    guard.wrap("a", lambda: 1 / 0)()
    assert guard.wrap("b", lambda: 5)() == 5
    assert guard.failures == {"a": 1}


def test_a_kept_probe_is_called_again_and_counted(guard: Guard, caplog: pytest.LogCaptureFixture) -> None:
    """A bad argument is that call's fault alone."""
    wrapped = guard.wrap("log", float, keep=True)
    assert wrapped("x") is None
    assert wrapped("y") is None
    assert wrapped("2.5") == 2.5
    assert guard.failures == {"log": 2}
    assert len(caplog.records) == 1


def test_interrupts_pass_through(guard: Guard) -> None:
    """Ctrl-C in the middle of our code is the user's."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.wrap("probe", interrupted)()
    assert guard.wrap("probe", lambda: 1)() == 1


def test_a_failing_report_is_swallowed_too() -> None:
    """Nothing of ours raises, not even the telling."""
    guard = Guard(lambda probe, error: 1 / 0)
    assert guard.wrap("probe", lambda: [][0])() is None
    assert guard.failures == {"probe": 1, "report": 1}


def test_own_time_is_measured_once_for_nested_calls(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The outer call's clock covers the inner."""
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr("halfscope.guard.time.perf_counter_ns", lambda: next(now))
    inner = guard.wrap("inner", lambda: 1)
    outer = guard.wrap("outer", lambda: inner())
    assert outer() == 1
    assert guard.own_ns == 10


def test_a_stopped_guard_calls_nothing(guard: Guard) -> None:
    """After the end of the run, hooks that somebody kept do nothing."""
    guard.stopped = True
    assert guard.wrap("probe", lambda: 1)() is None
