"""Skip classes and streaks."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import torch
from halfscope.instrument.skips import SkipClassifier, Verdict
from hypothesis import given
from hypothesis import strategies as st


class Driver:
    """Feeds a classifier with a scale that backs off as GradScaler's does."""

    def __init__(self, init_scale: float = 2.0**16) -> None:
        self.classifier = SkipClassifier(init_scale)
        self.scale = init_scale
        self.step = 0

    def attempt(self, *, skipped: bool, loss_finite: bool | None = True) -> Verdict:
        verdict = self.classifier.observe(step=self.step, skipped=skipped, scale=self.scale, loss_finite=loss_finite)
        self.step += 1
        if skipped:
            self.scale /= 2
        return verdict

    def clean(self, count: int) -> list[Verdict]:
        return [self.attempt(skipped=False) for _ in range(count)]

    def settle(self) -> None:
        self.clean(50)

    def grow(self) -> None:
        self.scale *= 2


def skips(verdicts: Iterable[Verdict]) -> list[str | None]:
    return [verdict.skip for verdict in verdicts]


def test_skips_before_fifty_clean_attempts_are_settling() -> None:
    """A scale that starts too high comes down without alarm."""
    driver = Driver()
    assert skips(driver.attempt(skipped=True) for _ in range(6)) == ["settling"] * 6
    driver.clean(49)
    assert driver.attempt(skipped=True).skip == "settling"


def test_fifty_clean_attempts_in_a_row_end_settling() -> None:
    """From then on a skip is a skip."""
    driver = Driver()
    driver.clean(50)
    assert driver.attempt(skipped=True).skip == "single"


def test_a_nonfinite_loss_never_settles() -> None:
    """It does not go away with the scale, so three in a row are a streak from the start."""
    driver = Driver()
    verdicts = [driver.attempt(skipped=True, loss_finite=False) for _ in range(3)]
    assert skips(verdicts) == ["single", "single", "streak"]
    assert verdicts[2].streak_start is not None
    assert verdicts[2].streak_start.first_step == 0


def test_an_unknown_loss_counts_as_finite() -> None:
    """Without a loss the benefit of the doubt goes to the scale."""
    assert Driver().attempt(skipped=True, loss_finite=None).skip == "settling"


def test_settling_ends_where_no_scale_is_left_to_try() -> None:
    """More skips in a row than log2(init_scale) + 8 are a streak that began with the first."""
    driver = Driver(2.0**16)
    verdicts = [driver.attempt(skipped=True) for _ in range(25)]
    assert skips(verdicts[:24]) == ["settling"] * 24
    start = verdicts[24].streak_start
    assert start is not None
    assert (start.first_step, start.num_skips, start.reason) == (0, 25, "in_a_row")


def test_the_first_skip_after_a_growth_is_a_probe_however_late() -> None:
    """A scaler finds its limit by trying; what it finds at the new scale is one probe."""
    driver = Driver()
    driver.settle()
    driver.grow()
    driver.clean(70)
    assert driver.attempt(skipped=True).skip == "probe"
    driver.clean(3)
    assert driver.attempt(skipped=True).skip == "single"


def test_a_probe_needs_a_finite_loss() -> None:
    """A NaN loss right after a growth is not the growth's doing."""
    driver = Driver()
    driver.settle()
    driver.grow()
    assert driver.attempt(skipped=True, loss_finite=False).skip == "single"


def test_a_lowered_scale_leaves_no_probe_due() -> None:
    """Another optimizer's skip took the scale back: the next skip is not at a grown scale."""
    driver = Driver()
    driver.settle()
    driver.grow()
    driver.clean(1)
    driver.scale /= 2
    driver.clean(1)
    assert driver.attempt(skipped=True).skip == "single"


def test_three_skips_in_a_row_are_a_streak_from_the_first() -> None:
    """A probe that is followed by two more skips was the beginning of it."""
    driver = Driver()
    driver.settle()
    driver.grow()
    verdicts = [driver.attempt(skipped=True) for _ in range(4)]
    assert skips(verdicts) == ["probe", "single", "streak", "streak"]
    start = verdicts[2].streak_start
    assert start is not None
    assert (start.first_step, start.num_skips, start.reason) == (50, 3, "in_a_row")
    assert verdicts[3].streak_start is None


def test_a_streak_ends_after_fifty_clean_attempts_and_counts_its_skips() -> None:
    """Its last step is its last skip."""
    driver = Driver()
    driver.settle()
    for _ in range(5):
        driver.attempt(skipped=True)
    driver.clean(10)
    assert driver.attempt(skipped=True).skip == "streak"
    verdicts = driver.clean(50)
    assert all(verdict.streak_end is None for verdict in verdicts[:49])
    end = verdicts[49].streak_end
    assert end is not None
    assert (end.first_step, end.last_step, end.num_skips) == (50, 65, 6)
    assert driver.attempt(skipped=True).skip == "single"


def test_more_than_one_percent_of_two_hundred_is_a_streak() -> None:
    """The third unexplained skip within 200 attempts tips it, with the first of them as its beginning."""
    driver = Driver()
    driver.settle()
    first = driver.step
    assert driver.attempt(skipped=True).skip == "single"
    driver.clean(90)
    assert driver.attempt(skipped=True).skip == "single"
    driver.clean(90)
    verdict = driver.attempt(skipped=True)
    assert verdict.skip == "streak"
    assert verdict.streak_start is not None
    assert (verdict.streak_start.first_step, verdict.streak_start.reason) == (first, "rate")


def test_skips_further_apart_are_no_streak() -> None:
    """Three in 202 attempts are within one percent of every window."""
    driver = Driver()
    driver.settle()
    for _ in range(8):
        assert driver.attempt(skipped=True).skip == "single"
        driver.clean(99)


def test_probes_do_not_count_towards_the_rate() -> None:
    """A growth interval of 60 makes a probe every 60 attempts: more than one percent, and healthy."""
    driver = Driver()
    driver.settle()
    for _ in range(20):
        driver.grow()
        assert driver.attempt(skipped=True).skip == "probe"
        driver.clean(59)


def test_a_scale_that_is_set_back_from_a_trial_is_still_on_trial_itself() -> None:
    """The highest scale that mostly works may be taken back once for each growth to it, within the rate window."""
    driver = Driver()
    driver.settle()
    for _ in range(12):
        driver.grow()
        driver.clean(20)
        driver.grow()
        assert driver.attempt(skipped=True).skip == "probe"
        driver.clean(10)
        assert driver.attempt(skipped=True).skip == "probe"
        driver.clean(20)
    driver.grow()
    driver.clean(199)
    driver.grow()
    driver.attempt(skipped=True)
    driver.clean(1)
    assert driver.attempt(skipped=True).skip == "single"


def test_a_scale_that_comes_down_from_growths_long_ago_is_a_streak() -> None:
    """What grew over thousands of attempts and is lost within two hundred was not on trial."""
    driver = Driver()
    driver.settle()
    for _ in range(4):
        driver.grow()
        driver.clean(2000)
    assert [(driver.clean(40), driver.attempt(skipped=True).skip)[1] for _ in range(4)] == [
        "probe", "single", "single", "streak",
    ]  # fmt: skip


def test_probes_go_on_beside_a_streak_and_do_not_keep_it_from_ending() -> None:
    """A growth interval of 20 tries every 21 attempts: the streak is over 50 clean ones after its own last skip."""
    driver = Driver()
    driver.settle()
    for _ in range(3):
        last = driver.attempt(skipped=True)
        driver.clean(30)
    assert last.streak_start is not None
    assert last.streak_start.reason == "rate"
    ends = []
    for _ in range(4):
        driver.grow()
        assert driver.attempt(skipped=True).skip == "probe"
        ends += [verdict.streak_end for verdict in driver.clean(20) if verdict.streak_end is not None]
    (end,) = ends
    assert (end.first_step, end.last_step, end.num_skips) == (50, 112, 3)


def test_a_growth_before_a_row_of_three_makes_no_part_of_it_a_probe() -> None:
    """Two growths just before, and four skips on end: a streak from the first, and no probe behind its beginning."""
    driver = Driver()
    driver.settle()
    for _ in range(4):
        driver.grow()
        driver.clean(20)
    assert skips(driver.attempt(skipped=True) for _ in range(4)) == ["probe", "probe", "streak", "streak"]
    driver.clean(20)
    driver.grow()
    assert skips(driver.attempt(skipped=True) for _ in range(3)) == ["probe", "streak", "streak"]


def test_slow_unrest_before_settling_becomes_a_streak_in_the_end() -> None:
    """A skip every 40 attempts never lets 50 clean ones pass; it must not be called settling for ever."""
    driver = Driver(2.0**16)
    classes = []
    for _ in range(60):
        classes.append(driver.attempt(skipped=True).skip)
        driver.scale = 2.0**16
        driver.clean(39)
    assert classes[:24] == ["settling"] * 24
    assert classes[-1] == "streak"


ATTEMPTS = st.tuples(st.booleans(), st.sampled_from([True, False, None]), st.sampled_from([0.5, 1.0, 2.0]))


@given(st.lists(ATTEMPTS, max_size=400))
def test_every_skip_has_a_class_and_streaks_begin_before_they_end(
    attempts: list[tuple[bool, bool | None, float]],
) -> None:
    """For any sequence: classes come with skips only, and starts and ends alternate."""
    classifier = SkipClassifier(2.0**8)
    scale, on = 2.0**8, False
    for step, (skipped, loss_finite, factor) in enumerate(attempts):
        verdict = classifier.observe(step=step, skipped=skipped, scale=scale, loss_finite=loss_finite)
        scale *= factor
        assert (verdict.skip is not None) is skipped
        if verdict.streak_start is not None:
            assert not on
            assert verdict.streak_start.first_step <= step
            on = True
        if skipped:
            assert verdict.skip == "probe" or (verdict.skip == "streak") is on
        if verdict.streak_end is not None:
            assert on
            on = False


@pytest.mark.parametrize("growth_interval", [20, 50, 100])
def test_a_short_growth_interval_is_calm(growth_interval: int) -> None:
    """The real GradScaler on overflows of FP16, gradients of varying size: no streak, and few single skips."""
    scaler = torch.amp.GradScaler("cpu", growth_interval=growth_interval)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], 0.0)
    classifier = SkipClassifier(2.0**16)
    sizes = torch.randn(1500, generator=torch.Generator().manual_seed(2)).mul(0.25).exp() * 0.13
    classes = []
    for step, size in enumerate(sizes):
        scaler.scale(torch.zeros(1))
        scale = scaler.get_scale()
        weight.grad = (size * scale).reshape(1).half().float()
        scaler.step(optimizer)
        skipped = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"][torch.device("cpu")].item() > 0
        scaler.update()
        verdict = classifier.observe(step=step, skipped=skipped, scale=scale, loss_finite=True)
        assert verdict.streak_start is None
        classes += [verdict.skip] if verdict.skip else []
    assert len(classes) > 1500 / growth_interval / 3
    assert classes.count("single") < 1500 / 200


@pytest.mark.slow
def test_a_healthy_run_of_twenty_thousand_steps_shows_settling_and_probes_only() -> None:
    """The real GradScaler against a gradient that overflows FP16 above scale 2^11, growth interval 100."""
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=100)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], 0.0)
    classifier = SkipClassifier(2.0**16)
    classes: list[str] = []
    for step in range(20_000):
        scaler.scale(torch.zeros(1))
        scale = scaler.get_scale()
        # What an FP16 matmul makes of a true gradient of 25: infinite from 65,520 / 25 on.
        weight.grad = torch.tensor([25.0 * scale]).half().float()
        scaler.step(optimizer)
        skipped = scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"][torch.device("cpu")].item() > 0
        scaler.update()
        verdict = classifier.observe(step=step, skipped=skipped, scale=scale, loss_finite=True)
        assert verdict.streak_start is None
        if verdict.skip is not None:
            classes.append(verdict.skip)
    assert classes[:5] == ["settling"] * 5
    assert set(classes[5:]) == {"probe"}
    assert 190 <= len(classes) <= 205
