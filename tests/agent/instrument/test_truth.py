"""What is exported, against an independent reading of the same training made by an unwatched twin.

The twin's own code tells scale, skip, applied steps and gradient norm of every step; the watched training must export
the same, and must end with the same bits in every parameter and optimizer state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import torch

STEPS = 200
MAX_NORM = 0.05
GROWTH_INTERVAL = 10
FINITE_OVERFLOWS = {5, 6, 21, 45, 46, 47, 48, 75, 133, 134, 168}
"""Steps whose loss is finite and whose gradients overflow FP16."""
NONFINITE_LOSSES = {30, 31, 60, 150}
POISONED_FROM = 195
"""Without a scaler nothing catches an infinity, so it comes only at the end."""

Precision = Literal["FP32", "BF16", "FP16"]
Loop = Literal["plain", "closure", "accumulation"]
Kind = Literal["unfused", "foreach", "fused"]

CASES = [
    (precision, loop, clipped, kind)
    for precision in ("FP32", "BF16", "FP16")
    for loop in ("plain", "closure", "accumulation")
    for clipped in (False, True)
    for kind in ("unfused", "foreach", "fused")
    if not (precision == "FP16" and loop == "closure")  # GradScaler.step takes no closure
    if kind != "foreach" or (loop == "plain" and clipped)  # by its hooks it is an unfused one
]


@dataclass
class Reading:
    """What the test itself sees, step by step."""

    scale: list[float] = field(default_factory=list)
    scale_next: list[float] = field(default_factory=list)
    skipped: list[float] = field(default_factory=list)
    applied: list[float] = field(default_factory=list)
    norm: list[float] = field(default_factory=list)
    clip_returned: list[float] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)
    """Of every layer, unscaled, before clipping, in float64."""


class Training:
    """One training of a tiny network; reads its own state only when asked to."""

    def __init__(self, precision: Precision, loop: Loop, clipped: bool, kind: Kind, *, reads: bool) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
        flags: dict[str, Any] = {"unfused": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3, **flags[kind])
        self.scaler = None
        if precision == "FP16":
            self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=GROWTH_INTERVAL)
        self.dtype = {"FP32": None, "BF16": torch.bfloat16, "FP16": torch.float16}[precision]
        self.num_micro = 2 if loop == "accumulation" else 1
        self.loop, self.clipped, self.reads = loop, clipped, reads
        self.reading = Reading()
        self.generator = torch.Generator().manual_seed(7)

    def factor(self, step: int) -> float:
        if self.scaler is None:
            return math.inf if step >= POISONED_FROM else 1e25 if step in FINITE_OVERFLOWS else 1.0
        return math.inf if step in NONFINITE_LOSSES else 1e25 if step in FINITE_OVERFLOWS else 1.0

    def loss(self, step: int) -> torch.Tensor:
        inputs = torch.randn(3, 4, generator=self.generator)
        with torch.autocast("cpu", dtype=self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            output = self.model(inputs)
        return output.float().pow(2).mean() * self.factor(step) / self.num_micro

    def train(self, *, after: Any = None) -> None:
        for step in range(STEPS):
            self.attempt(step)
            if after is not None:
                after(step)

    def attempt(self, step: int) -> None:
        if self.loop == "closure":
            self.optimizer.step(lambda: self.backward(step))
        else:
            self.backward(step)
            if self.scaler is None:
                self.optimizer.step()
            else:
                self.scaler.step(self.optimizer)
                self.scaler.update()
        if self.reads:
            self.read_after()

    def backward(self, step: int) -> float:
        self.optimizer.zero_grad()
        total = 0.0
        for _ in range(self.num_micro):
            loss = self.loss(step)
            (loss if self.scaler is None else self.scaler.scale(loss)).backward()
            total += loss.item()
        if self.reads:
            self.read_gradients(total)
        if self.clipped:
            if self.scaler is not None:
                self.scaler.unscale_(self.optimizer)
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), MAX_NORM)
            if self.reads:
                self.reading.clip_returned.append(norm.item())
        return total

    def read_gradients(self, loss: float) -> None:
        scale = 1.0 if self.scaler is None else self.scaler.get_scale()
        grads = [p.grad.double() / scale for p in self.model.parameters() if p.grad is not None]
        self.reading.gradients.append({n: g for (n, _), g in zip(self.model.named_parameters(), grads, strict=True)})
        self.reading.norm.append(torch.cat([grad.flatten() for grad in grads]).norm().item())
        self.reading.skipped.append(float(self.scaler is not None and any(not g.isfinite().all() for g in grads)))
        self.reading.scale.append(scale)
        self.reading.loss.append(loss)

    def read_after(self) -> None:
        self.reading.scale_next.append(1.0 if self.scaler is None else self.scaler.get_scale())
        states = self.optimizer.state
        self.reading.applied.append(float(next(iter(states.values()))["step"]) if states else 0.0)

    def tensors(self) -> list[torch.Tensor]:
        state = [t for s in self.optimizer.state.values() for t in s.values() if isinstance(t, torch.Tensor)]
        return [*self.model.parameters(), *state]


def point(training: Training, clipped: bool, loop: Loop, kind: Kind) -> str:
    """Where the table in docs/design.md says that gradients are read."""
    if training.scaler is not None:
        return "scaled_step" if kind == "fused" and not clipped else "unscale"
    return "clip" if clipped else "closure" if loop == "closure" else "step"


def same(found: float, expected: float, *, rel: float) -> bool:
    if not math.isfinite(expected):
        return not math.isfinite(found)
    return math.isclose(found, expected, rel_tol=rel, abs_tol=0.0)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "loop", "clipped", "kind"), CASES)
def test_exports_what_an_independent_reading_sees_and_changes_no_bit(
    watching: Any, assert_is_sketch_of: Any, precision: Precision, loop: Loop, clipped: bool, kind: Kind
) -> None:
    """Scale, next scale, skip, applied steps, norm, loss and sketches of 200 steps; the training is bitwise the
    unwatched one."""
    twin = Training(precision, loop, clipped, kind, reads=True)
    twin.train()
    seen = twin.reading
    training = Training(precision, loop, clipped, kind, reads=False)
    watching(training.model, training.optimizer, training.scaler, every=20)
    training.train()
    recorded = watching.read()

    assert recorded.steps() == list(range(STEPS))
    assert list(recorded.series("opt.steps").values()) == seen.applied
    norms = recorded.series("grad.norm")
    assert list(norms) == list(range(STEPS))
    for step, expected in enumerate(seen.norm):
        assert same(norms[step], expected, rel=1e-6), (step, norms[step], expected)
    for step, returned in enumerate(seen.clip_returned):
        # Equal to the last bit, but where float32 squares overflow and ours is recomputed.
        assert norms[step] == returned or not math.isfinite(returned) or returned > 1e15, step
    if training.scaler is not None:
        assert list(recorded.series("amp.scale").values()) == seen.scale
        assert list(recorded.series("amp.scale_next").values()) == seen.scale_next
        assert list(recorded.series("amp.skipped").values()) == seen.skipped
        assert sum(seen.skipped) >= len(FINITE_OVERFLOWS | NONFINITE_LOSSES)
        losses = recorded.series("loss")
        assert all(same(losses[step], loss, rel=1e-6) for step, loss in enumerate(seen.loss))
    else:
        assert not recorded.series("amp.skipped")
    assert recorded.kinds("agent_degraded") == []
    bad = {step for step, norm in enumerate(seen.norm) if not math.isfinite(norm)}
    assert set(recorded.frames) == set(range(0, STEPS, 20)) | bad
    for step, frame in recorded.frames.items():
        assert list(frame) == [name for name, _ in training.model.named_parameters()]
        for name, found in frame.items():
            assert_is_sketch_of(found.sketch, seen.gradients[step][name].flatten().tolist(), rel=1e-9)
            assert found.point == point(training, clipped, loop, kind)
            assert found.clipped == ("no" if found.point in ("unscale", "scaled_step", "clip") else "maybe")
            if training.scaler is None:
                assert math.isnan(found.scale)
            else:
                assert found.scale == seen.scale[step]
    for watched, unwatched in zip(training.tensors(), twin.tensors(), strict=True):
        assert watched.detach().numpy().tobytes() == unwatched.detach().numpy().tobytes()
