"""The norm that an optimizer is handed, where it is not read but follows from what `clip_grad_norm_` computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from halfscope.instrument import handed
from halfscope.probes import gradients
from torch.nn.utils import clip_grad_norm_, clip_grad_value_

pytestmark = pytest.mark.skipif(not gradients.IS_QUICK, reason="without the compiled helper it is always read")

STEPS = handed.PROOFS + 4
CLOSE_REL = 1e-6
"""To the sum in float64: torch's sums and the coefficient are float32, each element is rounded once more."""
Touch = Callable[[list[torch.nn.Parameter]], object]


class Training:
    """Clipped steps, and what was true of each."""

    def __init__(self, watching: Any, net: Any, *, dtype: torch.dtype = torch.float32, **options: Any) -> None:
        self.model = net().to(dtype)
        weights = [one for one in self.model.parameters() if one.dim() == 2]
        biases = [one for one in self.model.parameters() if one.dim() == 1]
        # As the Trainer has them: in another order than the model's.
        groups = [{"params": weights}, {"params": biases, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, 1e-3, **options)
        self.run = watching(self.model, self.optimizer, every=1000)
        self.returned: list[float] = []
        self.handed: list[float] = []

    def train(self, num_steps: int = STEPS, *, touch: Touch | None = None, touch_from: int = 0, **how: Any) -> None:
        parameters = list(self.model.parameters())
        for step in range(num_steps):
            self.optimizer.zero_grad()
            inputs = torch.linspace(-1, 1 + step, 12, dtype=parameters[0].dtype).reshape(3, 4)
            (self.model(inputs).pow(2).mean() * 10.0 ** (step % 4 - 2)).backward()
            self.returned.append(clip_grad_norm_(parameters, **{"max_norm": 0.5, **how}).item())
            if touch is not None and step >= touch_from:
                touch(parameters)
            self.handed.append(math.hypot(*(one.grad.double().norm().item() for one in parameters)))
            self.optimizer.step()

    def check(self, watching: Any, rel: float = CLOSE_REL) -> None:
        recorded = watching.read()
        assert recorded.kinds("agent_degraded") == []
        assert list(recorded.series("grad.norm").values()) == self.returned
        assert list(recorded.series("grad.norm_clipped").values()) == pytest.approx(self.handed, rel=rel)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by each reading of all gradients."""
    made: list[int] = []
    read = gradients.read
    monkeypatch.setattr(gradients, "read", lambda *args, **options: (made.append(1), read(*args, **options))[1])
    return made


@pytest.mark.parametrize(
    ("dtype", "how"),
    [
        (torch.float32, {}),
        (torch.float32, {"foreach": False, "error_if_nonfinite": True}),
        (torch.float64, {"foreach": True, "max_norm": 1}),
    ],
)
def test_norms_are_what_was_returned_and_handed_and_in_the_end_no_gradient_is_read(
    watching: Any, net: Any, reads: list[int], dtype: torch.dtype, how: dict[str, Any]
) -> None:
    """Clipped or below the greatest norm, groups in another order than what is clipped."""
    training = Training(watching, net, dtype=dtype, fused=dtype is torch.float32)
    training.train(**how)
    assert len(reads) == handed.PROOFS
    assert min(training.returned) < 0.5 < 1 < max(training.returned)
    training.check(watching)


def replace(parameters: list[torch.nn.Parameter]) -> None:
    for one in parameters:
        one.grad = one.grad * 0.5


def set_all(parameters: list[torch.nn.Parameter]) -> None:
    for one in parameters:
        one.grad.numpy()[...] *= 3.0


@pytest.mark.parametrize(
    "touch",
    [
        lambda parameters: parameters[2].grad.mul_(0.5),
        lambda parameters: parameters[0].grad[1:].detach().view(-1)[3:4].add_(1.0),
        lambda parameters: torch._foreach_mul_([one.grad for one in parameters], 0.25),
        lambda parameters: [one.grad.data.mul_(2.0) for one in parameters],
        lambda parameters: parameters[3].grad.data.add_(1.0),
        lambda parameters: torch._amp_foreach_non_finite_check_and_unscale_(
            [one.grad for one in parameters], torch.zeros(()), torch.tensor(0.5)
        ),
        lambda parameters: clip_grad_value_(parameters, 1e-3),
        lambda parameters: clip_grad_norm_(parameters[:2], 1e-3),
        lambda parameters: clip_grad_norm_(parameters, 0.1, norm_type=1.0),
        lambda parameters: clip_grad_norm_(parameters, 0.1),
        lambda parameters: setattr(parameters[1], "grad", None) or setattr(parameters[1], "grad", torch.ones(8)),
        replace,
        set_all,
    ],
)
def test_what_is_done_to_gradients_behind_clipping_is_seen(watching: Any, net: Any, touch: Touch) -> None:
    """In place, of one tensor, of a view, of all, behind the back of torch's count; clipped again; replaced. In steps
    in which nothing is read for proof any more."""
    training = Training(watching, net)
    training.train(touch=touch, touch_from=handed.PROOFS)
    training.check(watching)


def test_what_neither_torch_counts_nor_a_sample_holds_is_found_by_reading_at_first(
    watching: Any, net: Any, reads: list[int]
) -> None:
    """One norm that does not agree, and all are read."""
    layer = torch.nn.Linear(200, 100)
    training = Training(watching, lambda: torch.nn.Sequential(torch.nn.Linear(4, 200), layer, torch.nn.Linear(100, 1)))

    def touch(parameters: list[torch.nn.Parameter]) -> None:
        layer.weight.grad.data[0, 1] = 7.0

    training.train(2, touch=touch)
    assert training.run._watcher._handed._num_agreed == {0: -1}
    training.train(handed.PROOFS, touch=touch)
    assert len(reads) == handed.PROOFS + 2
    training.check(watching, rel=1e-5)  # of 20,000 elements torch's sum is that far off


@pytest.mark.parametrize(
    ("how", "equals"), [({"norm_type": 1.0}, False), ({"norm_type": math.inf}, False), ({"max_norm": 0.0}, True)]
)
def test_other_norms_and_odd_limits_are_read(
    watching: Any, net: Any, reads: list[int], how: dict[str, Any], equals: bool
) -> None:
    """Theirs is not the L2 norm; a limit of 0 leaves nothing that a coefficient could tell."""
    training = Training(watching, net)
    training.train(**how)
    recorded = watching.read()
    assert (list(recorded.series("grad.norm").values()) == training.returned) is equals
    assert list(recorded.series("grad.norm_clipped").values()) == pytest.approx(training.handed, rel=CLOSE_REL)
    assert len(reads) == STEPS if equals else 2 * STEPS


def test_a_norm_of_more_than_the_optimizers_gradients_is_not_taken_for_theirs(watching: Any, net: Any) -> None:
    """Two optimizers, clipped together; each has its own norm."""
    model = net()
    first = torch.optim.SGD(model[0].parameters(), 0.1)
    second = torch.optim.SGD(model[2].parameters(), 0.1)
    watching(model, {"first": first, "second": second})
    expected: dict[str, list[float]] = {"before": [], "after": []}
    for _ in range(STEPS):
        model.zero_grad()
        model(torch.ones(3, 4)).pow(2).mean().backward()
        for when in expected:
            expected[when].append(math.hypot(*(one.grad.double().norm().item() for one in model[0].parameters())))
            if when == "before":
                clip_grad_norm_(model.parameters(), 0.05)
        first.step()
        second.step()
    recorded = watching.read()
    for name, when in (("grad.norm", "before"), ("grad.norm_clipped", "after")):
        found = list(recorded.series(name, optimizer="first").values())
        assert found == pytest.approx(expected[when], rel=CLOSE_REL)


def test_a_sample_tells_tensors_apart_wherever_they_differ(net: Any) -> None:
    """Here one in 3,126; place and count of changes are in it too."""
    parameter = torch.nn.Parameter(torch.zeros(100_000))
    parameter.grad = torch.arange(100_000, dtype=torch.float32)
    groups = [{"params": [parameter, torch.nn.Parameter(torch.zeros(3))]}]
    first = gradients.state(groups)
    assert first is not None
    assert gradients.state(groups) == first
    values, seen = parameter.grad.numpy(), set()
    for at in range(0, values.size, 6):
        values[at] += 0.5
        seen.add(gradients.state(groups))
        values[at] -= 0.5
    assert len(seen) > 32
    assert gradients.state(groups) == first
    parameter.grad.mul_(1.0)
    assert gradients.state(groups) != first
    with torch.inference_mode():
        parameter.grad = torch.ones(100_000)
        assert gradients.state(groups) is None
    for odd in (torch.ones(100_000, dtype=torch.float16), torch.ones(200_000)[::2]):
        other = torch.nn.Parameter(odd.clone() if odd.is_contiguous() else torch.empty(100_000))
        other.grad = odd
        assert gradients.state([{"params": [other]}]) is None
