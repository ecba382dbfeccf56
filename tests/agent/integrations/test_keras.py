"""The callback in real Keras trainings on the torch backend, step by step against what the training itself reads."""

from __future__ import annotations

import copy
import itertools
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import halfscope
import pytest
from halfscope.integrations import NotAvailable
from halfscope.integrations.keras import HalfscopeCallback

from tests.helpers.frameworks.seen import Read, assert_same, program_of, weights

# NumPy warns of Keras' arrays, Keras of small data and what else.
pytestmark = pytest.mark.filterwarnings("ignore")

LABELS = {"float32": "FP32", "mixed_float16": "FP16-AMP", "mixed_bfloat16": "BF16-AMP"}


@pytest.fixture(scope="module")
def kit(framework: Callable[[str], Any]) -> Any:
    return framework("keras_trainings")


@pytest.mark.parametrize(("policy", "clipping"), list(itertools.product(LABELS, [None, 0.5])))
def test_every_step_is_what_the_training_sees(kit: Any, policy: str, clipping: float | None, read: Read) -> None:
    """Scale, skip, applied steps, loss, rate and norm of each step; weights bit for bit those of a training without
    us, and nothing is left on the optimizer."""
    plain = kit.fit(kit.Net(policy, global_clipnorm=clipping))
    watched = kit.fit(kit.Net(policy, global_clipnorm=clipping), [HalfscopeCallback()])
    assert weights(plain) == weights(watched)
    assert len(plain.seen) == 10
    if policy == "mixed_float16":
        assert {seen.applied for seen in plain.seen} == {True, False}
    (recorded,) = read()
    assert_same(recorded, plain.seen)
    skips = [step for step, seen in enumerate(plain.seen) if not seen.applied]
    assert [event.step for event in recorded.kinds("skip")] == skips
    assert not recorded.kinds("nonfinite_applied", "agent_degraded", "half_precision_parameters")
    assert recorded.end is not None
    assert recorded.end.outcome == "finished"
    assert recorded.facts["precision"] == LABELS[policy]
    assert re.search(r"dense_?\d*\.kernel$", recorded.facts["parameters"]["names"][0])
    assert recorded.facts["memory"]["optimizer_state_bytes"] >= 2 * 4 * (6 * 8 + 8 + 8 * 2 + 2)
    for optimizer in (watched.optimizer, getattr(watched.optimizer, "inner_optimizer", watched.optimizer)):
        assert not {"apply", "scale_loss"} & set(vars(optimizer))


def test_what_is_saved_meanwhile_is_the_plain_optimizer(kit: Any, journals: Path, tmp_path: Path) -> None:
    """A checkpoint that Keras writes in a watched training is read back as the very classes that were given."""
    path = tmp_path / "saved.keras"
    layers = kit.keras.layers
    net = kit.keras.Sequential([layers.Input((6,)), layers.Dense(2)])
    net.compile(optimizer=kit.keras.optimizers.LossScaleOptimizer(kit.keras.optimizers.SGD(1e-3)), loss="mse")
    kit.fit(net, [HalfscopeCallback(), kit.keras.callbacks.ModelCheckpoint(str(path))])
    loaded = kit.keras.models.load_model(path)
    assert type(loaded.optimizer) is type(net.optimizer)
    assert type(loaded.optimizer.inner_optimizer) is type(net.optimizer.inner_optimizer)
    assert float(loaded.optimizer.dynamic_scale.value) == float(net.optimizer.dynamic_scale.value)


def test_evaluation_comes_at_its_step_and_fits_are_runs(kit: Any, read: Read) -> None:
    """Validation takes part in no step; a second fit goes on at its step, as a run of its own."""
    net = kit.Net()
    callback = HalfscopeCallback(name="fits")
    rows = kit.np.zeros((8, 6), "float32"), kit.np.zeros((8, 2), "float32")
    kit.fit(net, [callback], validation_data=rows, epochs=2)
    kit.fit(net, [callback])
    first, second = read()
    assert_same(first, net.seen[:20])
    assert list(first.series("val_loss")) == [9, 19]
    assert list(first.series("keras/loss")) == [9, 19]
    assert_same(second, net.seen[20:], start_step=20)
    assert [each.start and each.start.name for each in (first, second)] == ["fits", "fits-2"]


def test_stop_training_stops_keras(kit: Any, read: Read) -> None:
    """`StopTraining` of an alert's callback ends the fit as Keras ends one, without an error."""

    class Stopping(HalfscopeCallback):
        def on_train_begin(self, logs: Any = None) -> None:
            super().on_train_begin(logs)
            assert self.run is not None
            self.run.on_alert(self._stop)

        @staticmethod
        def _stop(alert: Any) -> None:
            raise halfscope.StopTraining

    class Bad(kit.Net):
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return super().compute_loss(*args, **kwargs) * float("nan")

    kit.fit(Bad(), [Stopping()])
    (recorded,) = read()
    assert 1 <= len(recorded.steps()) <= 2
    assert recorded.end is not None
    assert recorded.end.outcome == "finished"


@pytest.mark.parametrize("option", ["gradient_accumulation_steps", "jit_compile"])
def test_what_is_not_watched_yet_is_said(kit: Any, option: str, read: Read, caplog: Any) -> None:
    """A warning, no run, and the training goes on."""
    accumulates = option == "gradient_accumulation_steps"
    net = kit.Net(**({option: 2} if accumulates else {}))
    net.jit_compile = not accumulates
    callback = HalfscopeCallback()
    callback.set_model(net)
    callback.on_train_begin()
    callback.on_train_end()
    assert read() == []
    assert option in caplog.text
    assert "not watched yet" in caplog.text


def test_another_backend_is_refused_with_what_to_do(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of another backend are none of torch's."""
    monkeypatch.setattr(kit.keras.backend, "backend", lambda: "jax")
    with pytest.raises(NotAvailable, match=r"saw 'jax'.*KERAS_BACKEND=torch"):
        HalfscopeCallback()


def test_callbacks_can_be_copied_and_pickled(kit: Any, journals: Path) -> None:
    """A copy has the options and no run."""
    callback = HalfscopeCallback(name="copied")
    for copied in (copy.deepcopy(callback), pickle.loads(pickle.dumps(callback))):
        assert isinstance(copied, kit.keras.callbacks.Callback)
        assert copied._trainings.options == {"name": "copied"}


def test_the_page_runs_as_it_stands(kit: Any, read: Read) -> None:
    """The program of docs/keras.md trains and is watched to its end."""
    exec(program_of("keras"), {"__name__": "__main__"})
    (recorded,) = read()
    assert len(recorded.steps()) >= 8
    assert recorded.series("loss").keys() == set(recorded.steps())
    assert recorded.series("amp.scale").keys() == set(recorded.steps())
    assert recorded.end is not None
    assert recorded.end.outcome == "finished"
