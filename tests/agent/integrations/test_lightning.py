"""The callback in real Lightning trainings, step by step against what the training itself reads."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import halfscope
import numpy as np
import pytest
import torch
from halfscope.integrations.lightning import HalfscopeCallback
from halfscope.launch.start import AutoWatch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers.frameworks.seen import Read, assert_same, assert_same_record, weights

# Lightning warns of few workers, small data and what else.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def lit(framework: Callable[[str], Any]) -> Any:
    return framework("lightning_trainings")


@pytest.mark.parametrize(
    ("precision", "accumulation", "clipping"), list(itertools.product(["fp32", "fp16", "bf16"], [1, 4], [None, 0.5]))
)
def test_every_step_is_what_the_training_sees(
    lit: Any, precision: str, accumulation: int, clipping: float | None, read: Read, launching: Any
) -> None:
    """Scale, skip, applied steps, loss, rate and norm of each step; weights bit for bit those of a training without us;
    under `halfscope run`, without a line of ours, the same record."""
    options = {"accumulate_grad_batches": accumulation, "gradient_clip_val": clipping}
    plain, watched, launched = lit.Net(), lit.Net(), lit.Net()
    lit.trainer(precision, **options).fit(plain)
    lit.trainer(precision, callbacks=[HalfscopeCallback(name="program")], **options).fit(watched)
    with launching():
        lit.trainer(precision, **options).fit(launched)
    assert weights(plain) == weights(watched) == weights(launched)
    assert len(plain.seen) == -(-lit.NUM_BATCHES // accumulation)
    if precision == "fp16":
        assert {seen.applied for seen in plain.seen} == {True, False}
    recorded, by_itself = read()
    assert_same(recorded, plain.seen)
    assert_same_record(recorded, by_itself)
    assert recorded.start is not None
    assert by_itself.start is not None
    assert recorded.start.name == by_itself.start.name == "program"
    assert recorded.facts["precision"] == {"fp32": "FP32", "fp16": "FP16-AMP", "bf16": "BF16-AMP"}[precision]
    assert recorded.series("samples")[0] == 4.0 * accumulation
    if clipping is not None:
        clipped = recorded.series("grad.norm_clipped")
        assert clipped
        assert all(norm <= clipping * 1.001 for norm in clipped.values())


def test_a_callback_of_the_programs_own_is_left_alone(lit: Any, read: Read, launched: AutoWatch) -> None:
    """Under `halfscope run` too: one run, with its own name."""
    lit.trainer(callbacks=[HalfscopeCallback(name="mine")]).fit(lit.Net())
    (recorded,) = read()
    assert recorded.start is not None
    assert recorded.start.name == "mine"


@pytest.mark.parametrize("by_itself", [False, True])
def test_each_fit_of_a_sweep_is_a_run(lit: Any, by_itself: bool, read: Read, launched: AutoWatch) -> None:
    """Fits one after the other, in one process: each is a run that begins at step 0 and has its own settings."""
    if not by_itself:
        launched.stop()
    callback = HalfscopeCallback(name="program")
    nets = [lit.Net(weight_decay=0.01 * number) for number in range(3)]
    for net in nets:
        lit.trainer(callbacks=[] if by_itself else [callback]).fit(net)
    launched.stop()
    found = read()
    assert [recorded.start and recorded.start.name for recorded in found] == ["program", "program-2", "program-3"]
    assert [recorded.start and recorded.start.config["weight_decay"] for recorded in found] == [0.0, 0.01, 0.02]
    for recorded, net in zip(found, nets, strict=True):
        assert_same(recorded, net.seen)
        assert recorded.end is not None
        assert recorded.end.outcome == "finished"


def test_a_resumed_fit_goes_on_at_its_step(lit: Any, read: Read, tmp_path: Path) -> None:
    """Behind a checkpoint steps are counted on, skipped ones included."""
    first = lit.trainer("fp16", callbacks=[HalfscopeCallback()])
    first.fit(lit.Net())
    first.save_checkpoint(tmp_path / "one.ckpt")
    net = lit.Net()
    trainer = lit.trainer("fp16", callbacks=[HalfscopeCallback()], max_epochs=2)
    takes = inspect.signature(trainer.fit).parameters  # the older ones load all there is anyway
    options = {"weights_only": False} if "weights_only" in takes else {}
    trainer.fit(net, ckpt_path=tmp_path / "one.ckpt", **options)
    before, after = read()
    assert before.steps()[-1] == lit.NUM_BATCHES - 1
    assert_same(after, net.seen, start_step=lit.NUM_BATCHES)


def test_validation_metrics_come_at_their_step(lit: Any, read: Read) -> None:
    """Evaluation takes part in no step; what it logs stands at the newest one; the check before training nowhere."""

    class Validated(lit.Net):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.log("val/loss", self.net(batch[0]).pow(2).mean())

        def val_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(lit.batches(2), batch_size=None)

    net = Validated()
    lit.trainer(callbacks=[HalfscopeCallback()], val_check_interval=5, log_every_n_steps=3).fit(net)
    (recorded,) = read()
    assert_same(recorded, net.seen)
    assert list(recorded.series("val/loss")) == [4, 9]
    losses = recorded.series("loss")
    logged = recorded.series("fit/loss")
    assert set(logged) >= {2, 5, 8}
    assert logged == pytest.approx({step: losses[step] for step in logged})


def test_the_cache_of_cast_weights_stays_as_lightning_has_it(lit: Any, read: Read) -> None:
    """Lightning turns autocast's off: each use of a weight is a cast of its own, watched or not, where a plain loop has
    one cast, watched or not; label, norms and the sketch of a weight that is used twice are right all the same."""

    class Casts(TorchDispatchMode):
        def __init__(self, weight: torch.Tensor) -> None:
            super().__init__()
            self.weight, self.number = weight.data_ptr(), 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if function is torch.ops.aten._to_copy.default and args[0].data_ptr() == self.weight:
                self.number += 1
            return function(*args, **(kwargs or {}))

    class Twice(lit.Net):
        def __init__(self) -> None:
            super().__init__()
            layer = torch.nn.Linear(6, 6)
            self.net = torch.nn.Sequential(layer, torch.nn.Tanh(), layer, torch.nn.Linear(6, 2))
            self.num_casts: list[int] = []
            self.first_grad: Any = None

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            with Casts(self.net[0].weight) as casts:
                loss = super().training_step(batch, batch_idx)
            self.num_casts.append(casts.number)
            self.is_cached = torch.is_autocast_cache_enabled()
            return loss

        def on_before_optimizer_step(self, optimizer: torch.optim.Optimizer) -> None:
            super().on_before_optimizer_step(optimizer)
            if self.first_grad is None:
                self.first_grad = self.net[0].weight.grad.double().numpy().copy()

    plain, watched = Twice(), Twice()
    lit.trainer("fp16").fit(plain)
    lit.trainer("fp16", callbacks=[HalfscopeCallback()]).fit(watched)
    expected = 1 if plain.is_cached else 2  # 2.4.0 has it on
    assert plain.num_casts == watched.num_casts == [expected] * lit.NUM_BATCHES
    assert weights(plain) == weights(watched)
    (recorded,) = read()
    assert_same(recorded, plain.seen)
    assert recorded.facts["precision"] == "FP16-AMP"
    sketch = recorded.frames[0]["net.0.weight"].sketch
    finite = np.abs(plain.first_grad[np.isfinite(plain.first_grad)])
    exponents = Counter((np.frexp(finite[finite > 0])[1] - 1).tolist())
    assert {sketch.lowest + at: count for at, count in enumerate(sketch.counts.tolist()) if count} == exponents
    assert int(sketch.zeros) == np.count_nonzero(plain.first_grad == 0)

    net = Twice().net
    run, half = halfscope.watch(net, torch.optim.SGD(net.parameters(), 1e-3)), torch.autocast("cpu", torch.float16)
    with run, Casts(net[0].weight) as casts, half:
        net(torch.ones(4, 6))
    assert casts.number == 1


def test_fused_optimizers_are_read_scaled_and_skip_truly(lit: Any, read: Read) -> None:
    """Lightning does not unscale for them, and their step is called on a skip: norm and skip are right all the same."""
    net = lit.Net(fused=True)
    lit.trainer("fp16", callbacks=[HalfscopeCallback()]).fit(net)
    assert {seen.applied for seen in net.seen} == {True, False}
    (recorded,) = read()
    assert_same(recorded, net.seen)


def test_what_lightning_refuses_ends_the_run(lit: Any, read: Read) -> None:
    """Clipping with a fused optimizer under a scaler: Lightning's own error, and a run that ended by it."""
    with pytest.raises(RuntimeError, match="does not allow for gradient clipping"):
        lit.trainer("fp16", callbacks=[HalfscopeCallback()], gradient_clip_val=0.5).fit(lit.Net(fused=True))
    (recorded,) = read()
    assert recorded.end is not None
    assert (recorded.end.outcome, recorded.end.error_type) == ("exception", "RuntimeError")


def test_sixteen_mixed_on_a_cpu_is_told_as_what_it_is(lit: Any, read: Read) -> None:
    """Lightning trains in BF16 where it was asked for FP16 on a CPU: the run says BF16."""
    trainer = lit.Trainer(
        accelerator="cpu", precision="16-mixed", max_steps=2, logger=False, callbacks=[HalfscopeCallback()],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(lit.Net())
    (recorded,) = read()
    assert recorded.facts["precision"] == "BF16-AMP"
    assert not recorded.series("amp.scale")


@pytest.mark.parametrize(("precision", "by_itself"), [("fp32", False), ("fp32", True), ("fp16", True)])
def test_several_optimizers_by_hand(lit: Any, precision: str, by_itself: bool, read: Read, launching: Any) -> None:
    """Manual optimization, with the callback and under `halfscope run`: both optimizers' norms, and a loss for each
    step; with a scaler Lightning updates it behind each optimizer, so that each of these is an attempt."""
    norms: dict[str, list[float]] = {"SGD": [], "Adam": []}

    class Two(lit.Net):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.net[0].parameters(), 1e-3), torch.optim.Adam(self.net[2].parameters(), 1e-3)

        def training_step(self, batch: Any, batch_idx: int) -> None:
            for optimizer in self.optimizers():
                loss = self.net(batch[0] * 1e-2).float().pow(2).mean()
                optimizer.zero_grad()
                self.manual_backward(loss)
                scaler = getattr(self.trainer.precision_plugin, "scaler", None)
                parameters = [p for group in optimizer.param_groups for p in group["params"]]
                norm = lit.norm_of(parameters) / (1.0 if scaler is None else scaler.get_scale())
                norms[type(optimizer.optimizer).__name__].append(norm)
                self.losses.append(float(loss.detach()))
                optimizer.step()

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            pass

    net = Two()
    with launching() if by_itself else nullcontext():
        lit.trainer(precision, callbacks=[] if by_itself else [HalfscopeCallback()]).fit(net)
    (recorded,) = read()
    for name, expected in norms.items():
        found = recorded.series("grad.norm", optimizer=name)
        assert list(found.values()) == pytest.approx(expected, rel=1e-5, nan_ok=True)
    pairs = [net.losses[at] + net.losses[at + 1] for at in range(0, len(net.losses), 2)]
    expected_losses = pairs if precision == "fp32" else net.losses
    assert list(recorded.series("loss").values()) == pytest.approx(expected_losses, rel=1e-6)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_compiled_network(lit: Any, in_place: bool, read: Read, launching: Any) -> None:
    """Every step of a network that is compiled, in place with the callback or wrapped under `halfscope run`, under the
    plain names."""
    net = lit.Net()
    if in_place:
        net.net.compile(backend="eager")
    else:
        net.net = torch.compile(net.net, backend="eager")
    with nullcontext() if in_place else launching():
        lit.trainer(callbacks=[HalfscopeCallback()] if in_place else [], max_steps=4).fit(net)
    (recorded,) = read()
    assert_same(recorded, net.seen)
    assert recorded.facts["parameters"]["names"][0] == "net.0.weight"
    assert recorded.facts["compiled"] is True


def test_stop_training_stops_lightning(lit: Any, read: Read) -> None:
    """`StopTraining` of an alert's callback ends the fit as Lightning ends one, without an error."""

    class Stopping(HalfscopeCallback):
        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            super().on_train_start(trainer, pl_module)
            assert self.run is not None
            self.run.on_alert(self._stop)

        @staticmethod
        def _stop(alert: Any) -> None:
            raise halfscope.StopTraining

    class Bad(lit.Net):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = super().training_step(batch, batch_idx)
            return loss * float("nan") if batch_idx == 3 else loss

    lit.trainer(callbacks=[Stopping()]).fit(Bad())
    (recorded,) = read()
    assert recorded.steps() == [0, 1, 2, 3]
    assert recorded.end is not None
    assert recorded.end.outcome == "finished"


def test_callbacks_can_be_copied_and_pickled(lit: Any, journals: Path) -> None:
    """As Lightning does for processes that it starts: a copy has the options and no run."""
    callback = HalfscopeCallback(name="copied", tags=["a"])
    for copied in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert isinstance(copied, sys.modules["lightning.pytorch"].Callback)
        assert copied._trainings.options == {"name": "copied", "tags": ["a"]}
        assert copied.run is None


def test_pytorch_lightning_by_its_other_name(lit: Any, read: Read) -> None:
    """A callback is one of the package whose Trainer it is given to."""
    import pytorch_lightning

    class Other(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(6, 2)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return self.net(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 1e-3)

        def train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(lit.batches(3), batch_size=None)

    pytorch_lightning.Trainer(
        accelerator="cpu", max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=HalfscopeCallback(),
    ).fit(Other())  # fmt: skip
    (recorded,) = read()
    assert recorded.steps() == [0, 1, 2]
    assert len(recorded.series("loss")) == 3
