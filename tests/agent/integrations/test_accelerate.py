"""Real loops around an Accelerator, step by step against what the loop itself reads."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from typing import Any

import halfscope
import pytest
import torch
from halfscope.integrations.accelerate import HalfscopeTracker, leave, watch

from tests.helpers.frameworks.seen import Read, assert_same, assert_same_record, weights

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def acc(framework: Callable[[str], Any]) -> Any:
    return framework("accelerate_loops")


@pytest.mark.parametrize(
    ("precision", "accumulation", "clipping"), list(itertools.product(["fp32", "fp16", "bf16"], [1, 4], [None, 0.5]))
)
def test_every_step_is_what_the_loop_sees(
    acc: Any, precision: str, accumulation: int, clipping: float | None, read: Read, launching: Any
) -> None:
    """Scale, skip, applied steps, loss, rate and norm of each step; weights bit for bit those of a loop without us;
    under `halfscope run`, without a line of ours, the same record."""
    options = {"gradient_accumulation_steps": accumulation}
    seen, plain = acc.loop(acc.accelerator_for(precision, **options), clipping)
    _, watched = acc.loop(acc.accelerator_for(precision, **options), clipping, watch)
    with launching():
        _, launched = acc.loop(acc.accelerator_for(precision, **options), clipping)
    assert weights(plain) == weights(watched) == weights(launched)
    assert len(seen) == -(-acc.NUM_BATCHES // accumulation)
    if precision == "fp16":
        assert {each.applied for each in seen} == {True, False}
    recorded, by_itself = read()
    assert_same(recorded, seen)
    assert_same_record(recorded, by_itself)
    assert recorded.facts["precision"] == {"fp32": "FP32", "fp16": "FP16-AMP", "bf16": "BF16-AMP"}[precision]
    if precision == "fp16":
        assert recorded.series("accelerate/skipped") == recorded.series("amp.skipped")
    if clipping is not None:
        norms = recorded.series("grad.norm")
        assert recorded.series("accelerate/grad_norm") == pytest.approx(norms, rel=1e-6, nan_ok=True)


@pytest.mark.parametrize("clipping", [None, 0.5])
def test_fused_optimizers_skips_are_ours_alone(acc: Any, clipping: float | None, read: Read) -> None:
    """Accelerate takes every call of a fused optimizer's step for an update; ours tells which were withheld."""
    seen, _ = acc.loop(acc.accelerator_for("fp16"), clipping, watch, fused=True)
    (recorded,) = read()
    assert_same(recorded, seen)
    assert set(recorded.series("amp.skipped").values()) == {0.0, 1.0}
    assert set(recorded.series("accelerate/skipped").values()) == {0.0}


def test_steps_are_seen_though_accelerate_puts_step_back(acc: Any, read: Read) -> None:
    """What replaces `optimizer.step` behind `prepare` is gone with the first call, since Accelerate puts its own back;
    our hooks are not, and `step` is the one that Accelerate left there."""
    calls = []

    def begin(accelerator: Any) -> None:
        optimizer = accelerator._optimizers[0].optimizer
        left = optimizer.step
        watch(accelerator)
        assert optimizer.step == left
        optimizer.step = lambda *given: calls.append(given)

    seen, watched = acc.loop(acc.accelerator_for("fp16"), 0.5, begin)
    _, plain = acc.loop(acc.accelerator_for("fp16"), 0.5)
    assert calls == []
    (recorded,) = read()
    assert_same(recorded, seen)
    assert {each.applied for each in seen} == {True, False}
    assert weights(watched) == weights(plain)


@pytest.mark.parametrize("given", [False, True])
def test_what_is_logged_to_trackers_comes_at_its_step(acc: Any, given: bool, read: Read) -> None:
    """`accelerator.log` and the configuration of `init_trackers`, with a tracker of ours named or not."""
    accelerator = acc.accelerator_for("fp32", **({"log_with": HalfscopeTracker()} if given else {}))
    model = acc.net()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-3))
    accelerator.init_trackers("digits", config={"width": 8})
    run = watch(accelerator, project="digits")
    for step, (inputs, _) in enumerate(acc.batches()[:4]):
        accelerator.backward(model(inputs).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()
        accelerator.log({"accuracy": 0.5 + step, "loss": 7.0, "phase": "train"}, step=step)
    assert accelerator.get_tracker("halfscope", unwrap=True) is run
    accelerator.end_training()
    (recorded,) = read()
    assert recorded.series("accuracy") == {0: 0.5, 1: 1.5, 2: 2.5, 3: 3.5}
    assert set(recorded.series("accelerate/loss").values()) == {7.0}
    assert 7.0 not in recorded.series("loss").values()
    assert recorded.start is not None
    assert recorded.start.config.get("width") == (8 if given else None)
    assert recorded.end is not None
    assert recorded.end.outcome == "finished"


def test_fp16_that_accelerate_leaves_out_on_a_cpu_is_told_as_fp32(acc: Any, read: Read) -> None:
    """`mixed_precision="fp16"` on a CPU trains in FP32 without a word: the run says FP32."""
    acc.accelerator_for("fp32")  # resets the state that all Accelerators of a process share
    accelerator = acc.Accelerator(mixed_precision="no", cpu=True)
    accelerator.state._mixed_precision = "fp16"
    acc.loop(accelerator, None, watch)
    (recorded,) = read()
    assert recorded.facts["precision"] == "FP32"
    assert recorded.start is not None
    assert recorded.start.config["accelerate"]["mixed_precision"] == "fp16"


def test_watching_needs_what_was_prepared(acc: Any) -> None:
    """Before `prepare` there is nothing to watch, and the message says what to do."""
    with pytest.raises(ValueError, match="prepared no model or no optimizer; expected watch"):
        watch(acc.accelerator_for("fp32"))


def test_stop_training_comes_out_of_backward(acc: Any, read: Read) -> None:
    """`StopTraining` of an alert's callback ends the program's own loop."""

    def stop(alert: Any) -> None:
        raise halfscope.StopTraining

    accelerator = acc.accelerator_for("fp32")
    model = acc.net()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-3))
    watch(accelerator).on_alert(stop)

    def train() -> None:
        for _ in range(10):
            accelerator.backward(model(torch.ones(4, 6)).sum() * float("nan"))
            optimizer.step()

    with pytest.raises(halfscope.StopTraining):
        train()
    accelerator.end_training()


def test_an_accelerator_gets_its_class_back(acc: Any, journals: Any) -> None:
    """Followed, it is still an Accelerator that can be pickled; left, it is the plain one again."""
    accelerator = acc.accelerator_for("fp32")
    model = acc.net()
    accelerator.prepare(model, torch.optim.SGD(model.parameters(), 1e-3))
    with watch(accelerator):
        assert isinstance(accelerator, acc.Accelerator)
        assert type(accelerator) is not acc.Accelerator
        assert accelerator.__reduce_ex__(2)[1][0] is acc.Accelerator
    leave(accelerator)
    assert type(accelerator) is acc.Accelerator
    assert pickle.loads(pickle.dumps(HalfscopeTracker())).tracker is None
