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
    calls = [guard.wrap("probe", lambda: 1), guard.wrap("kept", lambda: 1, keep=True)]
    calls.append(guard.hook("hook", lambda: 1, lambda: False))
    guard.stop()
    assert [call() for call in calls] == [None, None, None]


def test_a_hook_is_swallowed_and_taken_out_like_any_other_call(guard: Guard, told: list[str]) -> None:
    """And what is wrapped inside of it goes on."""
    inner = guard.wrap("inner", lambda: 1 / 0)
    seen: list[int] = []

    def outer(value: int) -> int:
        inner()
        seen.append(value)
        return [5, 6][value]

    hook = guard.hook("outer", outer, lambda: False)
    assert [hook(0), hook(1), hook(2), hook(0)] == [5, 6, None, None]
    assert seen == [0, 1, 2]
    assert guard.failures == {"inner": 1, "outer": 1}
    assert told == ["inner: division by zero", "outer: list index out of range"]
    assert guard.own_ns > 0


def test_a_hook_does_nothing_where_it_is_told_so(guard: Guard) -> None:
    """While a compiler traces it, not even a clock is read."""
    tracing = [True]
    hook = guard.hook("hook", lambda value: value, lambda: tracing[0])
    assert hook(3) is None
    assert guard.own_ns == 0
    tracing[0] = False
    assert hook(3) == 3
