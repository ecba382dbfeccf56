"""`halfscope.wrap_comm_hook` and the hooks that come with halfscope, as objects."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path
from typing import Any

import halfscope
import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from tests.helpers.distributed import train
from tests.helpers.preloaded import Preloaded


def test_a_wrapped_hook_keeps_name_and_signature() -> None:
    """The model checks both when a hook is registered, and its log shows the name."""
    wrapped = halfscope.wrap_comm_hook(default_hooks.fp16_compress_hook)
    assert wrapped.__qualname__ == "fp16_compress_hook"
    assert inspect.signature(wrapped) == inspect.signature(default_hooks.fp16_compress_hook)
    assert halfscope.wrap_comm_hook(wrapped) is wrapped


def test_what_cannot_be_called_is_refused_with_what_can() -> None:
    """At once, where it is wrapped."""
    wrong: Any = 3
    with pytest.raises(TypeError, match="expected a communication hook"):
        halfscope.wrap_comm_hook(wrong)


@pytest.mark.parametrize("name", halfscope.comm_hooks.__all__)
def test_ready_made_hooks_can_be_pickled_and_copied(name: str) -> None:
    """A model that holds one is saved and copied as one with a hook of torch's."""
    hook = getattr(halfscope.comm_hooks, name)
    for again in (pickle.loads(pickle.dumps(hook)), copy.deepcopy(hook)):
        assert (again.hook, again.compression) == (hook.hook, hook.compression)
        annotation = inspect.signature(again).parameters["bucket"].annotation
        assert annotation is dist.GradBucket


HOOKS = """
    def reduced(hook, dtype, value):
        model = DDP(torch.nn.Linear(64, 1, bias=False, dtype=dtype))
        model.register_comm_hook(None, hook)
        model(value.to(dtype)[None]).sum().backward()
        return model.module.weight.grad[0].double()

    hooks = halfscope.comm_hooks
    value = torch.randn(64, generator=torch.Generator().manual_seed(rank)) * 300
    value[0], value[1] = 1e5, 3e4
    give(
        value=value,
        fp16=reduced(hooks.fp16_compress, torch.float32, value),
        bf16=reduced(hooks.bf16_compress, torch.float32, value),
        wide=reduced(hooks.fp32_accumulate, torch.float16, value.clamp(max=4e4)),
    )
"""


def test_ready_made_hooks_give_the_mean_to_their_precision(python: Preloaded, tmp_path: Path) -> None:
    """Of three ranks, against the mean in float64; FP16 also where the sum of what it can hold would overflow, and
    FP16 gradients accumulated in FP32 rounded once."""
    given = train(python, tmp_path, HOOKS, num_ranks=3).given
    values = torch.stack([one["value"] for one in given.values()]).double()
    half = torch.stack([one["value"].clamp(max=4e4).half() for one in given.values()]).double()
    for one in given.values():
        torch.testing.assert_close(one["bf16"], values.mean(0), rtol=2**-6, atol=3 * 300 * 2**-8)
        expected = values.mean(0)
        assert one["fp16"][0] == torch.inf, "the mean itself is beyond FP16"
        torch.testing.assert_close(one["fp16"][1:], expected[1:], rtol=2**-9, atol=3 * 300 * 2**-10)
        # FP32 sums of thirds of FP16 numbers, rounded to FP16 once: at most one unit in its last place off.
        assert torch.equal(one["wide"].half().isfinite(), torch.ones(64, dtype=torch.bool))
        torch.testing.assert_close(one["wide"], half.mean(0), rtol=2**-11 * 1.01, atol=2**-24)


FAILS = """
    model = DDP(torch.nn.Linear(4, 1))

    def failing(state, bucket):
        future = torch.futures.Future()
        future.set_exception(ValueError("the wire is cut"))
        return future

    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model.register_comm_hook(None, halfscope.wrap_comm_hook(failing))
    run = halfscope.watch(model, optimizer)
    try:
        model(torch.ones(1, 4)).sum().backward()
    except Exception as error:
        give(error=repr(error), failures=dict(run._guard.failures))
"""


def test_an_error_of_the_hooks_future_reaches_the_training(python: Preloaded, tmp_path: Path) -> None:
    """It is neither swallowed nor counted as one of ours."""
    for one in train(python, tmp_path, FAILS).given.values():
        assert "the wire is cut" in one["error"]
        assert one["failures"] == {}
