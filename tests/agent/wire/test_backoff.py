"""Delays between tries: full jitter between a floor and a cap."""

from __future__ import annotations

from halfscope.wire.backoff import MIN_DELAY_S, Backoff


def test_the_range_doubles_up_to_the_cap_and_starts_anew_after_success() -> None:
    """Drawn at the upper end, so that the range shows."""
    backoff = Backoff(base_s=1.0, cap_s=10.0, uniform=lambda: 1.0)
    assert [backoff.delay_s() for _ in range(6)] == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    backoff.reset()
    assert backoff.delay_s() == 1.0


def test_jitter_is_full_but_never_a_tight_loop() -> None:
    """Drawn at the lower end, the floor holds; thousands of failures do not overflow."""
    backoff = Backoff(base_s=1.0, cap_s=10.0, uniform=lambda: 0.0)
    assert {backoff.delay_s() for _ in range(3000)} == {MIN_DELAY_S}
