"""The callback in real trainings of Hugging Face's Trainer, step by step against what the training itself reads."""

from __future__ import annotations

import copy
import itertools
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import halfscope
import pytest
from halfscope.integrations.transformers import HalfscopeCallback
from halfscope.launch.start import AutoWatch

from tests.helpers.frameworks.seen import Read, assert_same, assert_same_record, norm_of, weights

# The Trainer warns of pinned memory, small data and what else.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def hf(framework: Callable[[str], Any]) -> Any:
    return framework("trainer_trainings")


@pytest.mark.parametrize(
    ("precision", "accumulation", "clipping"), list(itertools.product(["fp32", "fp16", "bf16"], [1, 4], [0.0, 0.5]))
)
def test_every_step_is_what_the_training_sees(
    hf: Any, precision: str, accumulation: int, clipping: float, read: Read, launching: Any, tmp_path: Path
) -> None:
    """Scale, skip, applied steps, loss, rate and norm of each step; weights bit for bit those of a training without us;
    under `halfscope run`, without a line of ours, the same record."""
    options = {"gradient_accumulation_steps": accumulation, "max_grad_norm": clipping}
    plain = hf.trainer(tmp_path, precision, **options)
    plain.train()
    watched = hf.trainer(tmp_path, precision, [HalfscopeCallback(name="program")], **options)
    watched.train()
    with launching():
        launched = hf.trainer(tmp_path, precision, **options)
        launched.train()
    assert weights(plain.model) == weights(watched.model) == weights(launched.model)
    assert len(plain.seen) == plain.state.global_step >= 2
    if precision == "fp16":
        assert {seen.applied for seen in plain.seen} == {True, False}
    recorded, by_itself = read()
    assert_same(recorded, plain.seen)
    assert_same_record(recorded, by_itself)
    assert recorded.start is not None
    assert by_itself.start is not None
    assert recorded.start.name == by_itself.start.name == "program"
    assert recorded.facts["precision"] == {"fp32": "FP32", "fp16": "FP16-AMP", "bf16": "BF16-AMP"}[precision]
    theirs, ours = recorded.series("train/grad_norm"), recorded.series("grad.norm")
    if clipping or theirs:  # without clipping the older ones log no norm
        assert list(theirs) == [step for step in recorded.steps() if step % 2]
    assert theirs == pytest.approx({step: ours[step] for step in theirs}, rel=1e-5, nan_ok=True)
    if precision == "fp16":
        assert recorded.series("accelerate/skipped") == recorded.series("amp.skipped")


def test_a_callback_of_the_programs_own_is_left_alone(hf: Any, read: Read, launched: AutoWatch, tmp_path: Path) -> None:
    """Under `halfscope run` too, even where it is added later: one run, with its own name."""
    trainer = hf.trainer(tmp_path)
    trainer.add_callback(HalfscopeCallback(name="mine"))
    trainer.train()
    (recorded,) = read()
    assert recorded.start is not None
    assert recorded.start.name == "mine"
    assert_same(recorded, trainer.seen)


def test_the_raw_loss_is_shown_where_the_log_replaces_it(hf: Any, read: Read, tmp_path: Path) -> None:
    """The Trainer logs an average in place of a loss that is NaN; ours is NaN at that step."""

    class Bad(hf.Net):
        calls = 0

        def forward(self, x: Any, labels: Any = None) -> Any:
            found = super().forward(x, labels)
            self.calls += 1
            return {**found, "loss": found["loss"] * float("nan")} if self.calls == 3 else found

    trainer = hf.trainer(tmp_path, "fp16", [HalfscopeCallback()], model=Bad())
    trainer.train()
    (recorded,) = read()
    assert_same(recorded, trainer.seen)
    losses, logged = recorded.series("loss"), recorded.series("train/loss")
    assert losses[2] != losses[2]
    assert all(loss == loss for loss in logged.values())


def test_what_the_trainer_hands_its_callbacks_is_not_what_is_recorded(hf: Any, read: Read, tmp_path: Path) -> None:
    """They get Accelerate's wrapper of the optimizer, and `on_pre_optimizer_step` comes when gradients are clipped
    already: ours names the optimizer itself, and its norm is the one before."""
    given: list[Any] = []
    norms: list[float] = []

    class Naive(hf.TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **found: Any) -> None:
            given.append(found["optimizer"])
            norms.append(norm_of(list(found["model"].parameters())))

    trainer = hf.trainer(tmp_path, "fp32", [Naive(), HalfscopeCallback()], max_grad_norm=0.01)
    trainer.train()
    assert {type(each).__name__ for each in given} == {"AcceleratedOptimizer"}
    assert all(norm <= 0.01 * 1.001 for norm in norms)
    assert all(each.norm > 0.02 for each in trainer.seen)
    (recorded,) = read()
    assert_same(recorded, trainer.seen)
    assert [each["class"] for each in recorded.facts["optimizers"]] == ["AdamW"]
    assert list(recorded.series("grad.norm_clipped").values()) == pytest.approx(norms, rel=1e-5)


def test_fused_optimizers_skips_are_ours_alone(hf: Any, read: Read, tmp_path: Path) -> None:
    """Accelerate calls no step of a fused optimizer skipped: its own series says 0, ours tells what was withheld."""
    trainer = hf.trainer(tmp_path, "fp16", [HalfscopeCallback()], fused=True, max_grad_norm=0.5)
    trainer.train()
    (recorded,) = read()
    assert_same(recorded, trainer.seen)
    assert set(recorded.series("amp.skipped").values()) == {0.0, 1.0}
    assert set(recorded.series("accelerate/skipped").values()) == {0.0}


def test_evaluation_comes_at_its_step(hf: Any, read: Read, launched: AutoWatch, tmp_path: Path) -> None:
    """Evaluation takes part in no step; its metrics stand at the newest one, without the speeds of it: here under
    `halfscope run`, with which the callback does the same."""
    trainer = hf.trainer(tmp_path, "fp32", eval_strategy="steps", eval_steps=4)
    trainer.train()
    (recorded,) = read()
    assert_same(recorded, trainer.seen)
    assert list(recorded.series("eval/loss"))[:2] == [3, 7]
    assert not {name for name in recorded.names() if name.endswith(("runtime", "per_second"))}


def test_each_training_of_a_sweep_is_a_run(hf: Any, read: Read, launched: AutoWatch, tmp_path: Path) -> None:
    """Trainings one after the other under `halfscope run`, one that fails among them."""

    class Broken(hf.Net):
        def forward(self, x: Any, labels: Any = None) -> Any:
            raise RuntimeError("out of luck")

    hf.trainer(tmp_path).train()
    with pytest.raises(RuntimeError, match="out of luck"):
        hf.trainer(tmp_path, model=Broken()).train()
    last = hf.trainer(tmp_path)
    last.train()
    launched.stop()
    found = read()
    assert [recorded.start and recorded.start.name for recorded in found] == ["program", "program-2", "program-3"]
    assert [len(recorded.steps()) for recorded in found] == [10, 0, 10]
    assert_same(found[2], last.seen)


def test_a_resumed_training_goes_on_at_its_step(hf: Any, read: Read, launched: AutoWatch, tmp_path: Path) -> None:
    """Behind a checkpoint steps are counted on; under `halfscope run`, as with the callback."""
    hf.trainer(tmp_path, "fp32", [HalfscopeCallback()], save="steps", save_steps=5, max_steps=5).train()
    trainer = hf.trainer(tmp_path, "fp32")
    trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-5"))
    before, after = read()
    assert before.steps() == list(range(5))
    assert len(trainer.seen) == 5
    assert after.steps() == list(range(5, 10))
    assert after.series("loss") == pytest.approx({at + 5: seen.losses[0] for at, seen in enumerate(trainer.seen)})


def test_stop_training_stops_the_trainer(hf: Any, read: Read, tmp_path: Path) -> None:
    """`StopTraining` of an alert's callback ends the training as the Trainer ends one, without an error."""

    class Stopping(HalfscopeCallback):
        def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
            super().on_train_begin(*args, **kwargs)
            assert self.run is not None
            self.run.on_alert(self._stop)

        @staticmethod
        def _stop(alert: Any) -> None:
            raise halfscope.StopTraining

    class Bad(hf.Net):
        def forward(self, x: Any, labels: Any = None) -> Any:
            found = super().forward(x, labels)
            return {**found, "loss": found["loss"] * float("nan")}

    hf.trainer(tmp_path, "fp32", [Stopping()], model=Bad()).train()
    (recorded,) = read()
    assert 1 <= len(recorded.steps()) <= 2
    assert recorded.end is not None
    assert recorded.end.outcome == "finished"


def test_secrets_of_the_arguments_stay_here(hf: Any, read: Read, tmp_path: Path) -> None:
    """The configuration is the Trainer's own sanitised one: no token in it."""
    hf.trainer(tmp_path, "fp32", [HalfscopeCallback(config={"mine": 1})], max_steps=1, hub_token="hf_abcdef").train()
    (recorded,) = read()
    assert recorded.start is not None
    assert recorded.start.config["mine"] == 1
    assert recorded.start.config["transformers"]["per_device_train_batch_size"] == hf.BATCH
    assert "hf_abcdef" not in str(recorded.start.config)


def test_callbacks_can_be_copied_and_pickled(hf: Any, journals: Path) -> None:
    """A copy has the options and no run."""
    callback = HalfscopeCallback(name="copied")
    for copied in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert isinstance(copied, hf.TrainerCallback)
        assert copied._trainings.options == {"name": "copied"}
