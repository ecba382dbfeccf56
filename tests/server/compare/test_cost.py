"""What members take: ratios with intervals, memory, time to the baseline's level, and why a run is slow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from halfscope.wire.messages import Layer, Layers
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Cost
from halfscope_server.query import Views
from halfscope_server.store.store import Store

from tests.helpers.comparing import Recordings
from tests.server.conftest import BEGAN_US, RunWriter

CUDA = {"type": "cuda", "name": "H100", "capability": "9.0"}


def _run(
    store: Store,
    run_id: str,
    *,
    step_s: float = 0.02,
    samples: float = 32.0,
    precision: str = "FP16-AMP",
    device: Any = CUDA,
    shapes: tuple[tuple[int, ...], ...] = (),
    num_steps: int = 400,
    memory: float = 2e9,
    skipped: int = 0,
    loss: np.ndarray[Any, Any] | None = None,
    between: float = 0.0,
    seed: int = 0,
) -> None:
    rng = np.random.default_rng(seed)
    times = step_s * rng.lognormal(0.0, 0.05, num_steps)
    steps, when = np.arange(num_steps), BEGAN_US + (np.cumsum(times) * 1e6).astype(np.int64)
    writer = RunWriter(store, run_id, name=run_id)
    writer.facts(
        precision=precision,
        device=device,
        memory={"parameter_bytes": 400, "gradient_bytes": 400, "optimizer_state_bytes": 800},
    )
    writer.columns(steps[1:], {writer.series("time.step_s"): times[1:]}, times_us=when[1:])
    rate = writer.series("throughput.samples_per_s", reduction="sum")
    writer.columns(steps[1:], {rate: samples / times[1:]}, times_us=when[1:])
    values = 2.0 / (1 + steps / 50) if loss is None else loss
    writer.points("loss", steps, values, times_us=when, reduction="mean")
    kind = "memory.device_peak_bytes" if device is CUDA else "memory.rss_bytes"
    writer.points(kind, steps[::50], np.linspace(memory / 2, memory, steps[::50].size), reduction="sum")
    if between:
        idle = times[1:] * between * rng.lognormal(0.0, 0.3, num_steps - 1)
        writer.columns(steps[1:], {writer.series("time.between_s"): idle}, times_us=when[1:])
    for step in range(skipped):
        writer.skip(10 + 3 * step, "single")
    if shapes:
        writer.record(
            Layers([Layer(at, f"block.{at}.weight", list(shape), "float32") for at, shape in enumerate(shapes)])
        )
    writer.end(step=num_steps - 1)
    writer.commit()


def _costs(store: Store, *run_ids: str) -> list[Cost]:
    views = [Views(store).get(run_id) for run_id in run_ids]
    return Comparison([view for view in views if view is not None]).cost


def test_a_speedup_is_the_ratio_of_medians_with_its_interval(sqlite_store: Store) -> None:
    """Twice as fast is told as twice as fast, to within what the steps scatter by; memory likewise."""
    _run(sqlite_store, "fp32", precision="FP32", step_s=0.04, memory=4e9)
    _run(sqlite_store, "fp16", step_s=0.02, memory=2.5e9, seed=1)
    baseline, member = _costs(sqlite_store, "fp32", "fp16")
    assert (baseline.speedup, baseline.memory_ratio) == (None, None)
    assert member.speedup is not None
    assert member.speedup.low is not None
    assert member.speedup.high is not None
    assert 1.95 < member.speedup.low < 2.0 < member.speedup.high < 2.05
    assert member.throughput_unit == "samples/s"
    assert member.throughput is not None
    assert member.throughput.value == pytest.approx(32 / 0.02, rel=0.02)
    assert member.step_s is not None
    assert member.step_s.value == pytest.approx(0.02, rel=0.02)
    assert member.step_spread == pytest.approx(2 * 1.645 * 0.05, rel=0.2)
    assert (member.peak_memory_bytes, member.memory_of) == (2_500_000_000, "device")
    assert member.memory_ratio == pytest.approx(2.5 / 4)
    assert (member.parameter_bytes, member.gradient_bytes, member.optimizer_state_bytes) == (400, 400, 800)
    assert member.because == []


def test_the_process_and_the_device_are_not_compared(sqlite_store: Store) -> None:
    """Memory of other kinds has no ratio."""
    _run(sqlite_store, "fp32", precision="FP32", device={"type": "cpu", "capability": "AVX2"})
    _run(sqlite_store, "fp16")
    baseline, member = _costs(sqlite_store, "fp32", "fp16")
    assert (baseline.memory_of, member.memory_of, member.memory_ratio) == ("process", "device", None)
    assert any("whole process" in because for because in baseline.because)
    assert {"device"} <= set(member.confounded_by)


def test_the_time_to_the_baselines_level_is_that_of_its_trailing_mean(sqlite_store: Store) -> None:
    """Half the time for each step, or the level in half the steps; and never, where it does not get there."""
    slow = 2.0 / (1 + np.arange(400) / 50)
    _run(sqlite_store, "fp32", precision="FP32", step_s=0.04, loss=slow)
    _run(sqlite_store, "fast", step_s=0.02, loss=slow)
    _run(sqlite_store, "better", step_s=0.04, loss=2.0 / (1 + np.arange(400) / 25))
    _run(sqlite_store, "worse", step_s=0.04, loss=slow + 0.2)
    baseline, fast, better, worse = _costs(sqlite_store, "fp32", "fast", "better", "worse")
    # Within the tolerance of 0.5% it is there a little before its end.
    trailing = np.convolve(slow, np.ones(40) / 40, "valid")
    first = 39 + int(np.argmax(trailing <= trailing[-1] * 1.005))
    assert baseline.baseline_time_s == pytest.approx(first * 0.04, rel=0.02)
    assert baseline.time_to_baseline_s == baseline.baseline_time_s
    assert fast.time_to_baseline_s == pytest.approx(first * 0.02, rel=0.02)
    assert better.time_to_baseline_s is not None
    assert baseline.baseline_time_s is not None
    assert better.time_to_baseline_s < 0.6 * baseline.baseline_time_s
    assert worse.time_to_baseline_s is None


@pytest.mark.parametrize(
    ("run", "told"),
    [
        ({"shapes": ((64, 64), (64, 64), (10, 64))}, ["layers are small: 3 of 3"]),
        (
            {"shapes": ((4096, 4096), (50_257, 4096)), "samples": 64.0, "step_s": 0.04},
            ["block.1.weight is 50257 x 4096"],
        ),
        ({"shapes": ((4096, 4096), (10, 4096)), "samples": 64.0, "step_s": 0.04}, []),
        ({"device": {"type": "cpu", "capability": "AVX2"}, "shapes": ((4096, 4096),)}, ["no FP16 arithmetic"]),
        ({"device": {"type": "cpu", "capability": "AVX512"}, "precision": "BF16-AMP"}, ["for BF16 arithmetic"]),
        ({"skipped": 20}, ["5% of its steps were skipped"]),
        ({"precision": "FP32", "device": {"type": "cpu", "capability": "AVX2"}}, []),
        ({"between": 0.6}, ["between the end of a step and the next forward pass: waiting for data"]),
        ({"between": 0.1}, []),
        ({"between": 0.6, "step_s": 0.01}, []),
    ],
)
def test_why_a_run_is_slow_is_told_where_it_can_be(sqlite_store: Store, run: dict[str, Any], told: list[str]) -> None:
    """Each cause with the numbers that it rests on, and no cause that does not apply."""
    _run(sqlite_store, "fp32", precision="FP32", device=run.get("device", CUDA))
    _run(sqlite_store, "member", **run)
    because = [text for text in _costs(sqlite_store, "fp32", "member")[1].because if "whole process" not in text]
    assert len(because) == len(told)
    for text, words in zip(because, told, strict=True):
        assert words in text


def test_a_faster_run_is_not_explained(sqlite_store: Store) -> None:
    """Small layers are no matter where it is twice as fast all the same."""
    _run(sqlite_store, "fp32", precision="FP32", step_s=0.04)
    _run(sqlite_store, "fp16", step_s=0.02, shapes=((64, 64),))
    assert _costs(sqlite_store, "fp32", "fp16")[1].because == []


def test_few_steps_are_told(sqlite_store: Store) -> None:
    """Without an interval where there are too few for one."""
    _run(sqlite_store, "fp32", precision="FP32", num_steps=30)
    _run(sqlite_store, "fp16", num_steps=30)
    cost = _costs(sqlite_store, "fp32", "fp16")[1]
    assert cost.speedup is not None
    assert (cost.speedup.low, cost.speedup.high) == (None, None)
    assert any("only" in because for because in cost.because)
    _run(sqlite_store, "just begun", num_steps=3)
    assert _costs(sqlite_store, "fp32", "just begun")[1].speedup is None


def test_runs_without_times_have_no_cost(sqlite_store: Store) -> None:
    """Nothing is made up."""
    for run_id in ("one", "two"):
        writer = RunWriter(sqlite_store, run_id)
        writer.points("loss", np.arange(50), 1.0)
        writer.commit()
    for cost in _costs(sqlite_store, "one", "two"):
        assert (cost.throughput, cost.speedup, cost.step_s, cost.peak_memory_bytes) == (None, None, None, None)


def test_repeats_widen_the_interval_of_a_speedup(sqlite_store: Store) -> None:
    """By what they differ by: the machine, not the steps."""
    for at, step_s in enumerate((0.040, 0.042, 0.036, 0.044)):
        _run(sqlite_store, f"fp32-{at}", precision="FP32", step_s=step_s, seed=at)
    _run(sqlite_store, "fp16", step_s=0.02, seed=9)
    alone = _costs(sqlite_store, "fp32-0", "fp16")[1].speedup
    among = _costs(sqlite_store, *(f"fp32-{at}" for at in range(4)), "fp16")[4].speedup
    assert alone is not None
    assert among is not None
    assert alone.low is not None
    assert among.low is not None
    assert among.value == alone.value
    assert among.low < 1.6 < alone.low


def test_where_fp16_is_not_clearly_faster_small_layers_are_told(recordings: Recordings) -> None:
    """Twenty layers of 64 x 64 on a CPU. How much slower depends on what else the machine does: `make calibrate`."""
    cost = Comparison(recordings.views("tiny_fp32", "tiny_fp16")).cost[1]
    assert cost.speedup is not None
    lowest = cost.speedup.low or cost.speedup.value  # on a busy machine too few usual steps are left for an interval
    assert lowest < 1.1
    assert any("its layers are small: 20 of 20" in because for because in cost.because)
