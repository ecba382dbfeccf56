"""Ways in which gradient statistics are commonly computed wrongly: each is done here, shown to be wrong, and what
halfscope records of the same data is shown to be right.

What skips, classes of skips and scales are recorded for every step of a training is in instrument/test_truth.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import halfscope
import numpy as np
import pytest
import torch
from halfscope.record.layout import find_streams
from halfscope.record.reader import JournalReader
from halfscope.sketch import DEFAULT_SCALE, Sketch, merge, of_array, unpack
from halfscope.wire.codec import decode_record
from halfscope.wire.messages import Declare, Event, Layers, Points, Record, Sketches
from torch import nn

from tests.helpers.threads import on_one_thread

FLOOR = 2.0**-25
"""FP16 rounds what is smaller to zero."""


def sketch_of(*values: float) -> Sketch:
    return of_array(np.array(values, np.float32))


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    yield from on_one_thread()


class Watched:
    """A training that is watched into a journal, and what it recorded."""

    def __init__(self, directory: Path, model: nn.Module, optimizer: Any, scaler: Any = None) -> None:
        self._directory = directory
        self._run = halfscope.watch(model, optimizer, scaler, mode="offline", every=1, directory=directory)

    def records(self) -> list[Record]:
        self._run.finish()
        (place,) = find_streams(self._directory)
        return [decode_record(entry.payload) for entry in JournalReader(place).read(final=True)]


def sketches(records: list[Record], layer: str) -> dict[int, Sketch]:
    """Step to the sketch of one layer's gradient."""
    names = {item.lid: item.name for record in records if isinstance(record, Layers) for item in record.layers}
    found = {}
    for record in records:
        if isinstance(record, Sketches) and record.of == "grad":
            lids, stack = unpack(record)
            place = [names[lid] for lid in lids.tolist()].index(layer)
            found[record.step] = stack[place]
    return found


def series(records: list[Record], name: str) -> dict[int, float]:
    """Step to value."""
    sids = {
        item.sid for record in records if isinstance(record, Declare) for item in record.series if item.name == name
    }
    found = {}
    for record in records:
        for column in record.columns if isinstance(record, Points) else []:
            if column.sid in sids:
                steps = np.frombuffer(record.steps, "<i8")
                rows = np.frombuffer(column.rows, "<u4") if column.rows else np.arange(len(steps))
                found |= dict(zip(steps[rows].tolist(), np.frombuffer(column.values, "<f8").tolist(), strict=True))
    return found


# ---- of one tensor ----------------------------------------------------------------------------------------


def test_underflow_is_a_share_of_nonzero_elements_not_of_all() -> None:
    """90 zeros, 5 elements that FP16 loses, 5 that it keeps: half of what there was is lost, not a twentieth."""
    values = [0.0] * 90 + [FLOOR / 4] * 5 + [1.0] * 5
    wrong = sum(0 < abs(value) < FLOOR for value in values) / len(values)
    assert wrong == 0.05
    assert sketch_of(*values).would_flush_share(1.0) == 0.5


def test_minus_zero_is_a_zero() -> None:
    """By its bits it is a value of its own."""
    values = np.array([-0.0, 0.0, 1.0], np.float32)
    assert np.count_nonzero(values.view(np.uint32)) == 2
    assert (of_array(values).zeros, of_array(values).nonzero) == (2, 1)


def test_what_is_subnormal_is_not_yet_lost_and_what_is_lost_is_not_subnormal() -> None:
    """A tensor that FP16 flushes whole has no subnormal element at all: read as underflow, that share says 0."""
    flushed, imprecise = sketch_of(*[FLOOR / 8] * 10), sketch_of(*[2.0**-16] * 10)
    assert np.count_nonzero(np.abs(np.full(10, FLOOR / 8, np.float16).astype(np.float32)) > 0) == 0
    assert (flushed.subnormal(), flushed.near_floor_share(1.0), flushed.would_flush_share(1.0)) == (0, 0, 1)
    assert (imprecise.near_floor_share(1.0), imprecise.would_flush_share(1.0)) == (1, 0)


def test_a_fixed_threshold_belongs_to_no_format() -> None:
    """1e-8 is below FP16's floor, above BF16's, and says nothing once a loss scale is on the gradient."""
    values = np.full(8, 2e-8, np.float32)
    assert not (np.abs(values) < 1e-8).any()
    assert (values.astype(np.float16) == 0).all()
    assert of_array(values).would_flush_share(1.0) == 1
    assert of_array(values).would_flush_share(DEFAULT_SCALE) == 0


def test_small_values_are_kept_as_they_are() -> None:
    """Rounded to six decimals they are all zero."""
    sketch = sketch_of(3e-9, -5e-12)
    assert round(3e-9, 6) == 0.0
    assert (sketch.absmax, sketch.absmin_nonzero) == (np.float32(3e-9), np.float32(5e-12))
    assert sketch.norm == pytest.approx(math.hypot(3e-9, 5e-12), rel=1e-6)


def test_variance_over_parts_is_never_negative() -> None:
    """Pooled with a sign error, two ranks around different means have one; from summed moments it is the whole's."""
    rng = np.random.default_rng(0)
    parts = [rng.normal(mean, 0.1, 500).astype(np.float32) for mean in (-5.0, 5.0)]
    means, variances = [part.mean() for part in parts], [part.var() for part in parts]
    wrong = np.mean(variances) - np.var(means)
    assert wrong < 0
    whole = merge([of_array(part) for part in parts])
    mean = whole.sum / whole.n
    variance = whole.sumsq / whole.n - mean**2
    assert variance == pytest.approx(np.concatenate(parts).astype(np.float64).var(), rel=1e-9)


def test_a_norm_is_not_squared_in_the_tensors_own_type() -> None:
    """Squares of 300 overflow FP16, those of 1e-5 vanish in it."""
    for value in (300.0, 1e-5):
        half = np.full(4, value, np.float16)
        with np.errstate(over="ignore", under="ignore"):
            wrong = float(np.sqrt((half * half).sum(dtype=np.float16)))
        assert wrong == 0.0 or math.isinf(wrong)
        assert of_array(half).norm == pytest.approx(2 * float(half[0]), rel=1e-12)


def test_nan_and_infinities_have_counts_of_their_own() -> None:
    """Dropped, a tensor that is half NaN looks healthy; averaged, one of them hides everything else."""
    values = np.array([1.0, 1.0, math.nan, math.inf, -math.inf], np.float32)
    assert np.isnan(values.mean())
    sketch = of_array(values)
    assert (sketch.n, sketch.nan, sketch.pos_inf, sketch.neg_inf, sketch.sum) == (5, 1, 1, 1, 2.0)


# ---- of a training ----------------------------------------------------------------------------------------


def test_zeros_of_relu_are_no_underflow(tmp_path: Path) -> None:
    """Counted as such, a healthy FP32 network of ReLU units loses half of its gradient."""
    model = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 1))
    with torch.no_grad():
        model[0].bias.copy_(torch.tensor([-100.0, 0.1] * 32))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watched = Watched(tmp_path, model, optimizer)
    model(torch.randn(16, 8)).sum().backward()
    grad = model[0].weight.grad
    assert grad is not None
    wrong = (grad == 0).float().mean().item()
    assert wrong >= 0.5
    optimizer.step()
    found = sketches(watched.records(), "0.weight")[0]
    assert found.zeros >= found.n / 2
    assert found.would_flush_share(DEFAULT_SCALE) == 0


def test_zeros_of_untouched_embedding_rows_are_no_underflow(tmp_path: Path) -> None:
    """97 of 100 rows have no token in the batch."""
    model = nn.Embedding(100, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watched = Watched(tmp_path, model, optimizer)
    model(torch.tensor([1, 5, 7])).sum().backward()
    optimizer.step()
    found = sketches(watched.records(), "weight")[0]
    assert (found.zeros, found.n) == (388, 400)
    assert found.would_flush_share(DEFAULT_SCALE) == 0


def test_statistics_are_taken_before_clipping_and_at_skipped_steps_too(tmp_path: Path) -> None:
    """Clipping by an infinite norm leaves zeros and NaN where nothing was lost; then the step is skipped."""
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    watched = Watched(tmp_path, model, optimizer, scaler)
    scaler.scale(model(torch.ones(2, 4)).sum()).backward()
    assert model.weight.grad is not None
    model.weight.grad[0, 0] = math.inf
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    wrong = of_array(model.weight.grad.numpy())
    assert wrong.zeros == 15
    scaler.step(optimizer)
    scaler.update()
    found = sketches(watched.records(), "weight")[0]
    assert (found.zeros, found.pos_inf, found.nonzero) == (0, 1, 15)


def test_a_skip_is_the_scalers_own_word_not_a_fall_of_the_scale(tmp_path: Path) -> None:
    """A scale that cannot fall any further skips without falling: three skips in a row would read as two."""

    class Floored(torch.amp.GradScaler):
        def update(self, new_scale: Any = None) -> None:
            super().update(new_scale)
            self._scale.clamp_(min=2.0)  # type: ignore[union-attr]

    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = Floored("cpu", init_scale=8.0)
    watched = Watched(tmp_path, model, optimizer, scaler)
    scales = []
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).sum() * (math.inf if step in (1, 2, 3) else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    wrong = sum(later < earlier for earlier, later in zip([8.0, *scales], scales, strict=False))
    assert wrong == 2
    records = watched.records()
    assert [step for step, skipped in series(records, "amp.skipped").items() if skipped] == [1, 2, 3]
    assert [record.step for record in records if isinstance(record, Event) and record.kind == "skip"] == [1, 2, 3]


def test_the_scale_of_a_step_is_the_one_it_used(tmp_path: Path) -> None:
    """After `update` it is the next step's: what is divided by it is off by the factor of a growth or backoff."""
    model = nn.Linear(2, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=1)
    watched = Watched(tmp_path, model, optimizer, scaler)
    after = []
    for _ in range(3):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        after.append(scaler.get_scale())
    records = watched.records()
    assert after == [8.0, 16.0, 32.0]
    read = [record for record in records if isinstance(record, Sketches) and record.of == "grad"]
    assert [record.scale for record in read] == [4.0, 8.0, 16.0]
    assert list(series(records, "amp.scale").values()) == [4.0, 8.0, 16.0]
    assert all(found.absmax == 1.0 for found in sketches(records, "weight").values())


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_is_the_parameters_own_and_unscaled(tmp_path: Path, fused: bool) -> None:
    """A module's grad_output is another tensor, and the parameter's is scaled while hooks of a backward pass run."""
    model = nn.Linear(3, 2, bias=False)
    seen: dict[str, torch.Tensor] = {}
    handles = [
        model.register_full_backward_hook(lambda module, inputs, outputs: seen.update(output=outputs[0].clone())),
        model.weight.register_post_accumulate_grad_hook(lambda p: seen.update(scaled=p.grad.clone())),
    ]
    optimizer = torch.optim.Adam(model.parameters(), 0.01, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    watched = Watched(tmp_path, model, optimizer, scaler)
    batch = torch.randn(5, 3, requires_grad=True)
    scaler.scale(model(batch).square().sum()).backward()
    for handle in handles:
        handle.remove()
    scaler.step(optimizer)
    scaler.update()
    found = sketches(watched.records(), "weight")[0]
    true = seen["scaled"].double() / 1024.0
    assert found.norm == pytest.approx(true.norm().item(), rel=1e-9)
    assert found.n == 6 != seen["output"].numel()
    assert seen["scaled"].norm().item() == pytest.approx(1024.0 * float(found.norm), rel=1e-6)


def test_in_place_relu_is_no_reason_to_fail(tmp_path: Path) -> None:
    """Full backward hooks on a module raise there."""

    def make() -> nn.Sequential:
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))

    hooked = make()
    for module in hooked:
        module.register_full_backward_hook(lambda module, inputs, outputs: None)
    with pytest.raises(RuntimeError, match="modified inplace"):
        hooked(torch.randn(2, 4)).sum().backward()
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watched = Watched(tmp_path, model, optimizer)
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
    records = watched.records()
    assert [record.kind for record in records if isinstance(record, Event)] == ["run_started"]
    assert len(sketches(records, "0.weight")) == 1


def test_one_nan_step_poisons_nothing_that_comes_after(tmp_path: Path) -> None:
    """In a moving average it stays for ever; here each step has its own numbers."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    watched = Watched(tmp_path, model, optimizer, scaler)
    average = 0.0
    norms: list[float] = []
    for step in range(6):
        optimizer.zero_grad()
        scaler.scale(model(torch.ones(1, 2)).sum() * (math.nan if step == 2 else 1.0)).backward()
        norms.append(float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()))
        average = 0.9 * average + 0.1 * norms[-1]
        scaler.step(optimizer)
        scaler.update()
    assert math.isnan(average)
    recorded = series(watched.records(), "grad.norm")
    assert [math.isfinite(recorded[step]) for step in range(6)] == [step != 2 for step in range(6)]


def test_a_spike_is_not_part_of_what_it_is_judged_by() -> None:
    """Folded into its own mean and deviation, no spike among ten values is ever beyond three deviations; a record of
    every step leaves the judgement to whoever has the steps before it."""
    before, spike = [1.0, 1.1, 0.9, 1.0, 1.05, 0.95, 1.0, 1.1, 0.9], 1000.0
    folded = np.array([*before, spike])
    assert (spike - folded.mean()) / folded.std() < 3.01
    assert (spike - np.mean(before)) / np.std(before) > 1000
    sketches_before = merge([sketch_of(value) for value in before])
    assert sketch_of(spike).absmax / sketches_before.absmax > 900
