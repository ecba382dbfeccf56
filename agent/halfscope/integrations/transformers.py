"""The Trainer of Hugging Face Transformers: a callback.

    trainer = Trainer(model, args, train_dataset=data, callbacks=[HalfscopeCallback(project="digits")])

The Trainer hands its callbacks neither losses nor its Accelerator, and what it logs is averaged over steps, with NaN
replaced; so the raw losses are taken from the Accelerator, which the Trainer that calls is asked for once.
Invariant: Transformers is imported when a callback is made, never before.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Unpack

from halfscope.alerts import StopTraining
from halfscope.integrations import accelerate
from halfscope.integrations.base import Integration, Launching, WatchOptions, with_base
from halfscope.integrations.trainings import Trainings, WatchingCallback

MAX_FRAMES = 16
_LEFT_OUT = ("_runtime", "_per_second", "total_flos")
"""Ends of the names of what the Trainer logs of its own speed, and what its printer takes out before or behind us."""


class HalfscopeCallback(WatchingCallback):
    """Watches every `train` of a Trainer, each as a run of its own."""

    def __new__(cls, **options: Any) -> HalfscopeCallback:
        INTEGRATION.require()
        from transformers import TrainerCallback

        made: HalfscopeCallback = object.__new__(with_base(cls, (TrainerCallback,)))
        return made

    def __init__(self, **options: Unpack[WatchOptions]) -> None:
        """
        Args:
            options: as of `halfscope.watch`; of several trainings `run_id` and `start_step` are the first one's.

        Raises:
            NotAvailable: no Transformers is there.
            TypeError, ValueError: an option that cannot be taken.
        """
        super().__init__()
        self._trainings = Trainings(options)
        self._losses: accelerate.Losses | None = None
        hook = self._trainings.hook
        self._begin, self._tell, self._end = hook(self._begin_now), hook(self._tell_now), hook(self._trainings.end)

    # ---- called by the Trainer -----------------------------------------------------------------

    def on_train_begin(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        trainer = _calling_trainer()
        if not self._gives_way([] if trainer is None else trainer.callback_handler.callbacks):
            self._begin(args, state, found, trainer)

    def on_step_end(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        if self._losses is not None and self._losses.stop is not None:
            control.should_training_stop = True

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **found: Any) -> None:
        if state.is_world_process_zero and logs:
            self._tell(logs, control)

    def on_train_end(self, args: Any, state: Any, control: Any, **found: Any) -> None:
        self._end()

    # ---- what they do --------------------------------------------------------------------------

    def _begin_now(self, args: Any, state: Any, found: Mapping[str, Any], trainer: Any) -> None:
        optimizer = found["optimizer"]
        self._trainings.begin(
            found["model"],
            optimizer,
            getattr(optimizer, "scaler", None),
            name=getattr(state, "trial_name", None) or getattr(args, "run_name", None),
            config=_config(args, found["model"]),
            start_step=state.global_step,
        )
        if trainer is not None:
            self._losses = accelerate.Losses(self._trainings, trainer.accelerator, is_summed=True)
            accelerate.follow(trainer.accelerator, self._losses)

    def _tell_now(self, logs: Mapping[str, Any], control: Any) -> None:
        run = self._trainings.run
        if run is not None:
            values = {_renamed(name): value for name, value in logs.items() if not name.endswith(_LEFT_OUT)}
            try:
                run.log({name: value for name, value in values.items() if not isinstance(value, str)})
            except StopTraining:
                control.should_training_stop = True


def _renamed(name: str) -> str:
    """As the Trainer's own reporters name them: `eval/loss`, `train/grad_norm`."""
    for kind in ("eval", "test"):
        if name.startswith(f"{kind}_"):
            return f"{kind}/{name.removeprefix(f'{kind}_')}"
    return f"train/{name}"


def _calling_trainer() -> Any:
    """The Trainer whose frame is calling its callbacks right now; None where it is not one."""
    base = getattr(sys.modules.get("transformers.trainer"), "Trainer", None)
    frame = sys._getframe(1)
    for _ in range(MAX_FRAMES):
        if base is None or frame.f_back is None:
            return None
        frame = frame.f_back
        caller = frame.f_locals.get("self")
        if isinstance(caller, base):
            return caller
    return None


def _config(args: Any, model: Any) -> dict[str, Any]:
    """The Trainer's arguments, keys and tokens masked by itself, and the model's configuration."""
    from transformers import __version__

    config: Any = getattr(model, "config", None)
    described = config.to_dict() if hasattr(config, "to_dict") else {}
    arguments = {name: value for name, value in args.to_sanitized_dict().items() if value is not None}
    return {"transformers": {"version": __version__, **arguments}, **({"model": described} if described else {})}


def _adopt(trainer: Any, launching: Launching) -> None:
    if (callback := HalfscopeCallback.brought(trainer.callback_handler.callbacks, launching)) is not None:
        trainer.add_callback(callback)


INTEGRATION = Integration(
    id="transformers",
    title="Transformers",
    packages={"transformers": "4.51.3"},
    made={"transformers.trainer": "Trainer"},
    adopt=_adopt,
)
