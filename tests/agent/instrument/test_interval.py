"""How often gradients are sketched, by what that costs: a training of a clock that is told what everything takes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from halfscope.instrument.interval import (
    EVERY_ON_DEVICE,
    EVERY_ON_HOST,
    EXTRA_SKETCHES,
    FIRST_SKETCHES,
    LADDER,
    MAX_GAP_S,
    OVERDUE_S,
    RESERVED_SKETCHES,
    SketchInterval,
)
from hypothesis import given, settings
from hypothesis import strategies as st


class Training:
    """Steps of a known length, with a sketch of a known cost wherever one is due."""

    def __init__(self, *, every: int | None = None, budget_share: float = 0.005, on_device: bool = False) -> None:
        self.now_ns = self.elsewhere_ns = 0
        self.interval = SketchInterval(
            every=every,
            budget_share=budget_share,
            elsewhere_ns=lambda: self.elsewhere_ns,
            clock=lambda: self.now_ns,
        )
        if on_device:
            self.interval.use_device()
        self.step = 0
        self.sketched: list[int] = []
        self.times_s: list[float] = []
        self.spent_s = 0.0

    def run(self, num_steps: int, *, step_s: float, sketch_s: float, elsewhere_s: float = 0.0) -> None:
        for _ in range(num_steps):
            self.now_ns += round(step_s * 1e9)
            if self.interval.is_due(self.step):
                self.sketched.append(self.step)
                self.times_s.append(self.now_ns / 1e9)
                self.now_ns += round(sketch_s * 1e9)
                self.interval.spend(round(sketch_s * 1e9))
                self.elsewhere_ns += round(elsewhere_s * 1e9)
                self.spent_s += sketch_s + elsewhere_s
            if self.now_ns >= self.interval.overdue_ns:
                self.interval.is_overdue = True
            self.step += 1

    @property
    def gaps(self) -> list[int]:
        return [later - earlier for earlier, later in pairwise(self.sketched)]


@pytest.mark.parametrize("on_device", [False, True])
def test_cheap_sketches_come_at_the_usual_interval(on_device: bool) -> None:
    """Ten on a host and fifty on a device, from the first step on."""
    training = Training(on_device=on_device)
    training.run(3_000, step_s=0.1, sketch_s=0.004)
    assert training.sketched == list(range(0, 3_000, EVERY_ON_DEVICE if on_device else 10))


@pytest.mark.parametrize(
    ("sketch_s", "every"), [(0.0001, 50), (0.0005, 100), (0.0011, 500), (0.004, 1000), (9.0, 1000)]
)
def test_the_interval_widens_until_sketches_keep_to_their_budget(sketch_s: float, every: int) -> None:
    """The next interval of the ladder that is wide enough; 1,000 steps have a sketch whatever it costs."""
    training = Training()
    training.run(10_000, step_s=0.001, sketch_s=sketch_s)
    assert set(training.gaps[-5:]) == {every}
    if every < LADDER[-1]:
        assert sketch_s / (every * 0.001) <= 0.005


def test_what_other_threads_spend_counts() -> None:
    """Packing a sketch holds the interpreter up, too."""
    training = Training()
    training.run(2_000, step_s=0.001, sketch_s=0.0001, elsewhere_s=0.0003)
    assert set(training.gaps[-5:]) == {100}


def test_the_first_sketches_come_as_usual_unless_they_are_dear() -> None:
    """A short run has a picture; a second spent on it is enough."""
    training = Training()
    training.run(1_100, step_s=0.001, sketch_s=0.002)
    assert training.sketched == [*range(0, 10 * FIRST_SKETCHES + 1, 10), 500, 1000]
    dear = Training()
    dear.run(5_000, step_s=0.01, sketch_s=0.6)
    assert dear.sketched[:4] == [0, 10, 20, 1000]


def test_ranks_that_choose_differently_have_steps_in_common() -> None:
    """From the usual ones on each interval divides the next: what the rarest of them sketches, all do."""
    wide = [rung for rung in LADDER if rung >= EVERY_ON_HOST]
    assert {EVERY_ON_HOST, EVERY_ON_DEVICE} <= set(wide)
    assert all(wider % narrower == 0 for narrower, wider in pairwise(wide))


@pytest.mark.parametrize("sketch_s", [0.0, 0.05, 5.0])
def test_about_a_minute_of_training_has_a_sketch(sketch_s: float) -> None:
    """Of slow steps every few, however dear; and a training that slows down is not left alone for 1,000 steps."""
    training = Training()
    training.run(100, step_s=25.0, sketch_s=sketch_s)
    assert max(training.gaps[2:]) * (25.0 + sketch_s) <= MAX_GAP_S + 25.0 + sketch_s
    slowing = Training()
    slowing.run(5_000, step_s=0.001, sketch_s=0.004)
    assert slowing.gaps[-1] == 1000
    began = slowing.step
    slowing.run(1_000, step_s=1.0, sketch_s=0.004)
    times = [time_s for step, time_s in zip(slowing.sketched, slowing.times_s, strict=True) if step >= began]
    assert all(later - earlier <= OVERDUE_S + 2.1 for earlier, later in pairwise(times))


def test_an_interval_that_was_given_is_obeyed_literally() -> None:
    """At every step, whatever that costs; and every step that went wrong besides."""
    training = Training(every=1)
    training.run(3_000, step_s=0.0001, sketch_s=0.01)
    assert training.sketched == list(range(3_000))
    seventh = Training(every=7, on_device=True)
    seventh.run(700, step_s=0.0001, sketch_s=0.01)
    assert seventh.sketched == list(range(0, 700, 7))
    assert all(seventh.interval.allows_extra(step) for step in range(10 * EXTRA_SKETCHES))


def test_noise_does_not_move_the_interval() -> None:
    """One sketch in four held up by something else, and steps that vary by a fifth."""
    training = Training()
    training.run(200, step_s=0.001, sketch_s=0.0004)
    for number in range(40):
        noise = (0.9, 1.1, 1.0, 0.95)[number % 4]
        training.run(200, step_s=0.001 * noise, sketch_s=0.03 if number % 4 == 3 else 0.0004 * noise)
    assert set(training.gaps[FIRST_SKETCHES + 1 :]) == {100}


def test_the_interval_narrows_again_when_steps_are_longer() -> None:
    """A training whose steps became a hundred times longer can afford what it could not."""
    training = Training()
    training.run(5_000, step_s=0.001, sketch_s=0.002)
    assert training.gaps[-1] == 500
    training.run(5_000, step_s=0.1, sketch_s=0.002)
    assert training.gaps[-1] == 10


def test_all_that_ask_in_one_step_get_one_answer() -> None:
    """Two optimizers, and the batch before both: what the first one costs does not leave the second one out."""
    interval = SketchInterval(every=None, budget_share=0.005, clock=iter(range(10**9, 10**15, 10**6)).__next__)
    for step in range(1_000):
        answers = []
        for _ in range(3):
            answers.append(interval.is_due(step))
            interval.spend(10**7)
        assert len(set(answers)) == 1, step


def test_steps_that_went_wrong_have_an_allowance_of_their_own() -> None:
    """A burst is sketched whole; a run that goes wrong for good costs at most twice its budget."""
    training = Training()
    training.run(1_000, step_s=0.001, sketch_s=0.002)
    allowed = [step for step in range(1_000, 2_000) if training.interval.allows_extra(step)]
    assert allowed == list(range(1_000, 1_000 + EXTRA_SKETCHES))
    training.run(10 * 500, step_s=0.001, sketch_s=0.002)
    assert 5 <= sum(training.interval.allows_extra(step) for step in range(10_000, 11_000)) <= 11


def test_steps_behind_one_that_went_wrong_leave_half_of_the_allowance() -> None:
    """For others that go wrong; and where an interval was given, none is taken that was not asked for."""
    interval = SketchInterval(every=None, budget_share=0.005)
    dense = [step for step in range(1, 500) if interval.allows_dense(step)]
    assert dense == list(range(1, 1 + EXTRA_SKETCHES - RESERVED_SKETCHES))
    wrong = [step for step in range(500, 1_000) if interval.allows_extra(step)]
    assert wrong == list(range(500, 500 + RESERVED_SKETCHES))
    assert not SketchInterval(every=7, budget_share=0.005).allows_dense(3)


@settings(deadline=None, max_examples=25)
@given(
    step_s=st.floats(1e-5, 100.0),
    sketch_s=st.floats(0.0, 10.0),
    budget_share=st.floats(1e-4, 1.0),
    on_device=st.booleans(),
)
def test_no_more_is_spent_than_the_budget_the_start_and_the_least_that_is_promised(
    step_s: float, sketch_s: float, budget_share: float, on_device: bool
) -> None:
    """Over any training: what was spent is explained by one of the three."""
    training = Training(budget_share=budget_share, on_device=on_device)
    num_steps = 1_500
    training.run(num_steps, step_s=step_s, sketch_s=sketch_s)
    start = FIRST_SKETCHES + 2
    promised = num_steps * step_s / MAX_GAP_S * 2.3 + num_steps / LADDER[-1] + 1
    affordable = budget_share * num_steps * step_s / sketch_s if sketch_s else float("inf")
    assert len(training.sketched) <= start + promised + affordable + 1
    assert max(training.gaps) <= LADDER[-1]
