"""Lightning 2.x, under either of its names: a callback.

    trainer = Trainer(callbacks=[HalfscopeCallback(project="digits")])

Scaler, optimizers and clipping are seen by the hooks of `watch`, which follow Lightning into the closure that it hands
to `optimizer.step`; this adds what only Lightning knows: settings, losses, samples, metrics, beginning and end.
Invariant: Lightning is imported when a callback is made, never before.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Unpack

from halfscope.alerts import StopTraining
from halfscope.integrations.base import Integration, Launching, WatchOptions, with_base
from halfscope.integrations.trainings import Trainings, WatchingCallback, named_apart

_SETTINGS = (
    "accumulate_grad_batches",
    "gradient_clip_val",
    "gradient_clip_algorithm",
    "max_epochs",
    "max_steps",
    "num_devices",
    "num_nodes",
    "precision",
)


class HalfscopeCallback(WatchingCallback):
    """Watches every `fit` of a Trainer, each as a run of its own."""

    def __new__(cls, **options: Any) -> HalfscopeCallback:
        INTEGRATION.require()
        made: HalfscopeCallback = object.__new__(with_base(cls, _bases()))
        return made

    def __init__(self, **options: Unpack[WatchOptions]) -> None:
        """
        Args:
            options: as of `halfscope.watch`; of several fits `run_id` and `start_step` are the first one's.

        Raises:
            NotAvailable: no Lightning is there.
            TypeError, ValueError: an option that cannot be taken.
        """
        super().__init__()
        self._trainings = Trainings(options)
        self._resumed_step: int | None = None
        self._newest_step = 0
        self._metrics: dict[str, Any] = {}
        """As last told."""
        hook = self._trainings.hook
        self._begin, self._batch_ended, self._tell_metrics = hook(self._begin_now), hook(self._batch), hook(self._tell)
        self._end = hook(self._trainings.end)

    # ---- called by Lightning -------------------------------------------------------------------

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if not self._gives_way(trainer.callbacks):
            self._begin(trainer, pl_module)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        # In manual optimization nothing else is sure to tell the loss; with a scaler it is seen there.
        if not pl_module.automatic_optimization and _scaler(trainer) is None:
            self._pending_loss = loss.detach()

    def on_after_backward(self, trainer: Any, pl_module: Any) -> None:
        if (loss := self.__dict__.pop("_pending_loss", None)) is not None:
            self._batch_ended(trainer, loss)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = divided_by = None
        if pl_module.automatic_optimization:
            loss = outputs.get("loss") if isinstance(outputs, Mapping) else None
            divided_by = trainer.accumulate_grad_batches
        self._batch_ended(trainer, loss, divided_by, batch)
        every = trainer.log_every_n_steps
        if every and trainer.global_step % every == 0:
            self._tell_metrics(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._tell_metrics(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self._tell_metrics(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._newest_step = self._next_step()
        self._end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._newest_step = self._next_step()
        self._end("exception", exception)

    def state_dict(self) -> dict[str, Any]:
        return {"step": self._next_step()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._resumed_step = state_dict.get("step")

    # ---- what they do --------------------------------------------------------------------------

    def _next_step(self) -> int:
        step = self._trainings.next_step
        return self._newest_step if step is None else step

    def _begin_now(self, trainer: Any, module: Any) -> None:
        resumed, self._resumed_step = self._resumed_step, None
        self._metrics.clear()
        named = _named(trainer.optimizers)
        run = self._trainings.begin(
            module,
            # Where several are stepped by hand, the one that was made last is taken to end a step.
            dict(reversed(named.items())) if len(named) > 1 else named,
            _scaler(trainer),
            config=_config(trainer, module),
            start_step=trainer.global_step if resumed is None else resumed,
        )
        if len(named) > 1 and run._watcher is not None:
            run._watcher.first_is_a_guess = True

    def _batch(self, trainer: Any, loss: Any, divided_by: int | None = None, batch: Any = None) -> None:
        try:
            self._trainings.micro_batch(loss, divided_by=divided_by, samples=_num_samples(batch))
        except StopTraining:
            trainer.should_stop = True

    def _tell(self, trainer: Any) -> None:
        run = self._trainings.run
        if run is None:
            return
        metrics = trainer.callback_metrics
        fresh = {name: value for name, value in metrics.items() if self._metrics.get(name) is not value}
        self._metrics.update(fresh)
        try:
            run.log(named_apart(fresh, "lightning"))
        except StopTraining:
            trainer.should_stop = True


def _bases() -> tuple[type, ...]:
    """The callbacks of each Lightning that the program has loaded: a Trainer asks for one of its own package."""
    names = [name for name in ("lightning.pytorch", "pytorch_lightning") if name in sys.modules]
    if names:
        return tuple(sys.modules[name].Callback for name in names)
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback
    return (Callback,)


def _scaler(trainer: Any) -> Any:
    return getattr(trainer.precision_plugin, "scaler", None)


def _named(optimizers: list[Any]) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for optimizer in optimizers:
        name, count = type(optimizer).__name__, 1
        while name in named:
            count += 1
            name = f"{type(optimizer).__name__}-{count}"
        named[name] = optimizer
    return named


def _config(trainer: Any, module: Any) -> dict[str, Any]:
    settings = {name: getattr(trainer, name, None) for name in _SETTINGS}
    settings["strategy"] = type(trainer.strategy).__name__
    version = sys.modules[type(trainer).__module__.split(".")[0]].__version__
    return {**getattr(module, "hparams", {}), "lightning": {"version": version, **settings}}


def _num_samples(batch: Any) -> int | None:
    """The leading size of the first tensor in a batch."""
    if batch is None:
        return None
    from torch import Tensor

    waiting = [batch]
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, Tensor):
            return int(item.shape[0]) if item.dim() else 1
        if isinstance(item, Mapping):
            waiting[:0] = item.values()
        elif isinstance(item, (list, tuple)):
            waiting[:0] = item
    return None


def _adopt(trainer: Any, launching: Launching) -> None:
    if (callback := HalfscopeCallback.brought(trainer.callbacks, launching)) is not None:
        trainer.callbacks.append(callback)


INTEGRATION = Integration(
    id="lightning",
    title="Lightning",
    packages={"lightning": "2.4.0", "pytorch-lightning": "2.4.0"},
    made={"lightning.pytorch.trainer.trainer": "Trainer", "pytorch_lightning.trainer.trainer": "Trainer"},
    adopt=_adopt,
)
