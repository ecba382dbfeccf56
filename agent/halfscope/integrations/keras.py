"""Keras 3 on the torch backend: a callback.

    model.fit(x, y, callbacks=[HalfscopeCallback(project="digits")])

Keras' optimizers are none of torch's, and its LossScaleOptimizer is no GradScaler. So a run is given an optimizer that
stands in for Keras' own: its parameters are the model's trainable weights, and its step is the call of `apply`.
While a `fit` goes on, `apply` and `scale_loss` of the optimizer are shadowed on the object itself, and not by another
class as scalers are: Keras writes the class's registered name into what it saves, and copies objects by their
configuration, which leaves shadows behind.
Invariant: Keras is imported when a callback is made, never before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack

from halfscope.alerts import StopTraining
from halfscope.integrations.base import Integration, Launching, NotAvailable, WatchOptions, with_base
from halfscope.integrations.trainings import Trainings, WatchingCallback, named_apart

if TYPE_CHECKING:
    import torch

PRECISIONS = {
    "float32": "FP32",
    "float16": "FP16",
    "bfloat16": "BF16",
    "mixed_float16": "FP16-AMP",
    "mixed_bfloat16": "BF16-AMP",
}
"""Names of Keras' dtype policies: it casts by itself, where autocast would be seen."""


class HalfscopeCallback(WatchingCallback):
    """Watches every `fit` of a model, each as a run of its own."""

    model: Any
    """Set by Keras."""

    def __new__(cls, **options: Any) -> HalfscopeCallback:
        INTEGRATION.require()
        from keras import backend
        from keras.callbacks import Callback

        if backend.backend() != "torch":
            raise NotAvailable(
                f"halfscope.integrations.keras needs Keras on the torch backend: saw {backend.backend()!r}. "
                "Set KERAS_BACKEND=torch before keras is imported"
            )
        made: HalfscopeCallback = object.__new__(with_base(cls, (Callback,)))
        return made

    def __init__(self, **options: Unpack[WatchOptions]) -> None:
        """
        Args:
            options: as of `halfscope.watch`; of several fits `run_id` and `start_step` are the first one's.

        Raises:
            NotAvailable: no Keras is there, or it is on another backend.
            TypeError, ValueError: an option that cannot be taken.
        """
        super().__init__()
        self._trainings = Trainings(options)
        self._steps: Steps | None = None
        self._newest: tuple[weakref.ref[Any], int] | None = None
        """An optimizer, and the step that its training came to."""
        hook = self._trainings.hook
        self._begin, self._end, self._tell = hook(self._begin_now), hook(self._end_now), hook(self._tell_now)

    # ---- called by Keras -----------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        self._begin()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._steps is not None and self._steps.stop:
            self.model.stop_training = True

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        if logs:
            self._tell(logs)

    def on_train_end(self, logs: Any = None) -> None:
        self._end()

    # ---- what they do --------------------------------------------------------------------------

    def _begin_now(self) -> None:
        self._end_now()  # of a fit that an exception ended
        model, optimizer = self.model, self.model.optimizer
        _check(model, optimizer)
        variables = model.trainable_variables
        stand_in = _stand_in(optimizer, [variable.value for variable in variables])
        known, step = self._newest or (lambda: None, 0)
        self._trainings.begin(
            _tree(variables),
            stand_in,
            None,
            config=_config(model, optimizer),
            start_step=max(int(optimizer.iterations.value), step if known() is optimizer else 0),
            precision=PRECISIONS.get(model.dtype_policy.name),
        )
        self._steps = Steps(self._trainings, optimizer, stand_in)
        self._steps.attach()

    def _end_now(self) -> None:
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.detach()
            self._newest = weakref.ref(steps.optimizer), self._trainings.next_step or 0
        self._trainings.end()

    def _tell_now(self, logs: Mapping[str, Any]) -> None:
        run = self._trainings.run
        if run is not None:
            try:
                run.log(named_apart(logs, "keras"))
            except StopTraining:
                self.model.stop_training = True


class Steps:
    """What one optimizer of Keras' is called with, as steps of its stand-in."""

    def __init__(self, trainings: Trainings, optimizer: Any, stand_in: Any) -> None:
        self.optimizer = optimizer
        self.stop = False
        """A callback of `run.on_alert` wants the training to end."""
        self._trainings, self._stand_in = trainings, stand_in
        self._inner = _inner(optimizer)
        self._loss: Any = None
        self._applied = self._has_state = False
        hook = trainings.hook
        self._before, self._after = hook(self._before_now), hook(self._after_now)
        self._show_state = hook(self._show_state_now)

    def attach(self) -> None:
        """From now on."""
        optimizer, inner = self.optimizer, self._inner
        scale_loss, apply = optimizer.scale_loss, optimizer.apply
        _shadow(optimizer, "scale_loss", lambda loss: scale_loss(self._seen(loss)))
        _shadow(optimizer, "apply", lambda *args, **kwargs: self._apply(lambda: apply(*args, **kwargs)))
        if inner is not optimizer:
            inner_apply = inner.apply

            def applied(*args: Any, **kwargs: Any) -> Any:
                self._applied = True  # Keras has looked at the gradients: on the host it is known
                return inner_apply(*args, **kwargs)

            _shadow(inner, "apply", applied)

    def detach(self) -> None:
        """Nothing of ours is left behind."""
        for each, name in ((self.optimizer, "scale_loss"), (self.optimizer, "apply"), (self._inner, "apply")):
            each.__dict__.pop(name, None)

    def _seen(self, loss: Any) -> Any:
        self._loss = loss.detach() if hasattr(loss, "detach") else None
        return loss

    def _apply(self, work: Callable[[], Any]) -> None:
        self._applied = False
        scale = self._before()

        def step() -> None:
            work()
            if not self._has_state:
                self._has_state = True
                self._show_state()

        self._stand_in.work = step
        self._stand_in.step()
        self._after(scale)

    def _show_state_now(self) -> None:
        """For its bytes: the optimizer's variables exist now."""
        state = {variable.path: variable.value for variable in self._inner.variables}
        self._stand_in.state[self._stand_in.param_groups[0]["params"][0]] = state

    def _before_now(self) -> Any:
        """The loss scale of this step's backward pass; None where there is none."""
        rate = self.optimizer.learning_rate
        self._stand_in.param_groups[0]["lr"] = getattr(rate, "value", rate)
        run = self._trainings.run
        scale = _scale(self.optimizer)
        self._stand_in.grad_scale = scale
        if scale is not None and run is not None and run._watcher is not None:
            run._watcher.inside_scaler_step = self._stand_in  # whether it was applied is told by the report
        return scale

    def _after_now(self, scale: Any) -> None:
        run = self._trainings.run
        if run is None or run._watcher is None:
            return
        run._watcher.inside_scaler_step = None
        loss, self._loss = self._loss, None
        try:
            self._trainings.micro_batch(loss)  # before the report: whether the loss was finite tells skips apart
            if scale is not None:
                is_dynamic = self._inner is not self.optimizer
                run.report_scaler(
                    type(self.optimizer).__name__,
                    scale=scale,
                    scale_next=_scale(self.optimizer),
                    skipped=is_dynamic and not self._applied,
                    **_scaler_settings(self.optimizer),
                )
        except StopTraining:
            self.stop = True


def _shadow(item: Any, name: str, function: Callable[..., Any]) -> None:
    object.__setattr__(item, name, function)  # and not Keras' own, which looks for what it should track


def _inner(optimizer: Any) -> Any:
    """The one that a LossScaleOptimizer hands its gradients to; else itself."""
    return getattr(optimizer, "inner_optimizer", optimizer)


def _scale(optimizer: Any) -> torch.Tensor | None:
    """A copy of the scale as it is now: Keras changes it in place."""
    import torch

    if _inner(optimizer) is not optimizer:
        if optimizer.built:
            scale: torch.Tensor = optimizer.dynamic_scale.value.detach().clone()
            return scale
        return torch.tensor(float(optimizer.initial_scale))
    factor = optimizer.loss_scale_factor
    return None if factor is None else torch.tensor(float(factor))


def _scaler_settings(optimizer: Any) -> dict[str, Any]:
    if _inner(optimizer) is optimizer:
        return {}
    return {
        "init_scale": float(optimizer.initial_scale),
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": int(optimizer.dynamic_growth_steps),
    }


def _check(model: Any, optimizer: Any) -> None:
    if getattr(_inner(optimizer), "gradient_accumulation_steps", None):
        raise ValueError(
            "this Keras optimizer has gradient_accumulation_steps: its gradients lie in variables of its own and are "
            "not watched yet; expected none"
        )
    if model.jit_compile:
        raise ValueError("this Keras model has jit_compile=True, which is not watched yet; expected jit_compile=False")


def _stand_in(optimizer: Any, parameters: Sequence[Any]) -> Any:
    import torch

    class StandIn(torch.optim.Optimizer):
        work: Callable[[], Any]
        grad_scale: Any = None

        def step(self, closure: Any = None) -> Any:
            self.work()

    StandIn.__name__ = StandIn.__qualname__ = type(_inner(optimizer)).__name__
    rate = optimizer.learning_rate
    return StandIn(parameters, {"lr": float(getattr(rate, "value", rate))})


def _tree(variables: Sequence[Any]) -> torch.nn.Module:
    """Modules that have the variables under the paths that Keras gives them: its own names say less."""
    import torch

    root = torch.nn.Module()
    for variable in variables:
        *folders, name = variable.path.replace(".", "_").split("/")
        at = root
        for folder in folders:
            if folder not in at._modules:
                at.add_module(folder, torch.nn.Module())
            at = at.get_submodule(folder)
        at.register_parameter(name, variable.value)
    return root


def _config(model: Any, optimizer: Any) -> dict[str, Any]:
    from keras import __version__

    described = {name: value for name, value in _inner(optimizer).get_config().items() if _is_plain(value)}
    settings = {"version": __version__, "dtype_policy": model.dtype_policy.name, "optimizer": described}
    if _inner(optimizer) is not optimizer:
        settings["loss_scale"] = _scaler_settings(optimizer)
    return {"keras": settings}


def _is_plain(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool))


def _adopt(made: Any, launching: Launching) -> None:
    """Nothing: callbacks are given to `fit`, and a model may be made for much else."""


INTEGRATION = Integration(id="keras", title="Keras", packages={"keras": "3.15.1"}, made={}, adopt=_adopt)
