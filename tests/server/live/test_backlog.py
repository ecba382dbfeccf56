"""When an agent that sends old data will have caught up."""

from __future__ import annotations

from halfscope_server.live.backlog import Backlog


def test_a_shrinking_lag_says_how_long_it_takes() -> None:
    """Nine seconds of backlog worked off each second: 90 s of lag take 10 s."""
    backlog = Backlog()
    backlog.observe(0.0, 99.0)
    left = backlog.observe(1.0, 90.0)
    assert left is not None
    assert abs(left - 10.0) < 1e-9


def test_a_constant_lag_is_a_difference_of_clocks() -> None:
    """A machine whose clock is an hour behind is not an hour behind in its data."""
    backlog = Backlog()
    assert [backlog.observe(float(at), 3600.0) for at in range(5)] == [None] * 5


def test_a_small_lag_is_none() -> None:
    """Frames under way are no backlog."""
    backlog = Backlog()
    backlog.observe(0.0, 4.9)
    assert backlog.observe(1.0, 1.0) is None


def test_speed_forgets_what_is_long_ago() -> None:
    """After a minute at a constant lag an earlier quick stretch no longer counts."""
    backlog = Backlog()
    backlog.observe(0.0, 1000.0)
    for at in range(1, 62):
        left = backlog.observe(float(at), 100.0)
    assert left is None
