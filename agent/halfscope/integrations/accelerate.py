"""Accelerate: loops of one's own around an `Accelerator`, and its interface for trackers.

    run = watch(accelerator, project="digits")       # behind accelerator.prepare(...)

Scaler and optimizers are seen by the hooks of `halfscope.watch`; this adds the raw losses that go through
`accelerator.backward`, Accelerate's own idea of skips and norms, and what is given to `accelerator.log`.
An Accelerator is followed by swapping its class for a generated subclass of its own, as a scaler is: it can still be
pickled and copied, and gets its class back.
Invariant: Accelerate is imported when something of it is watched, never before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, cast

from halfscope.alerts import StopTraining
from halfscope.integrations.base import Integration, Launching, WatchOptions, with_base, without_base
from halfscope.integrations.trainings import Trainings

if TYPE_CHECKING:
    from halfscope.instrument.run import Run


def watch(accelerator: Any, **options: Unpack[WatchOptions]) -> Run:
    """Watches what an Accelerator has prepared, from now on; `accelerator.log` goes to the run too.

    Args:
        accelerator: after `prepare` of model and optimizer.
        options: as of `halfscope.watch`.

    Raises:
        NotAvailable: no Accelerate is there.
        TypeError, ValueError: an option that cannot be taken, or nothing was prepared.
    """
    INTEGRATION.require()
    if not accelerator._models or not accelerator._optimizers:
        raise ValueError(
            "the Accelerator has prepared no model or no optimizer; expected watch(accelerator) after "
            "model, optimizer = accelerator.prepare(model, optimizer)"
        )
    trainings = Trainings(options)
    trackers = _trackers(accelerator)
    config = _config(accelerator, trackers)
    models, optimizers = accelerator._models, accelerator._optimizers
    run = trainings.begin(_one(models), _one(optimizers), accelerator.scaler, config=config)
    follow(accelerator, Losses(trainings, accelerator))
    for tracker in trackers:
        tracker.trainings = trainings
    return run


def _config(accelerator: Any, trackers: Iterable[HalfscopeTracker]) -> dict[str, Any]:
    """What is worth keeping of an Accelerator, and what the program gave to trackers of ours."""
    from accelerate import __version__

    given = {name: value for tracker in trackers for name, value in tracker.config.items()}
    return {
        "accelerate": {
            "version": __version__,
            "mixed_precision": accelerator.mixed_precision,
            "gradient_accumulation_steps": accelerator.gradient_accumulation_steps,
            "distributed_type": str(accelerator.distributed_type),
            "num_processes": accelerator.num_processes,
        },
        **given,
    }


class Losses:
    """Tells a run what goes through one Accelerator."""

    def __init__(self, trainings: Trainings, accelerator: Any, *, is_summed: bool = False) -> None:
        """
        Args:
            is_summed: the losses of a step's micro-batches add up to its own, as the Trainer's do; else its loss is
                their mean.
        """
        self._trainings, self.is_summed = trainings, is_summed
        self._accelerator = weakref.ref(accelerator)
        self.before_backward = trainings.before_end = trainings.hook(self._tell_skip)
        self.after_backward = trainings.hook(self._after_backward)
        self.clipped = trainings.hook(self._clipped)
        self._told = -1
        self.stop: StopTraining | None = None
        """What a callback of `run.on_alert` raised, to end the training."""

    def _tell_skip(self) -> None:
        """What Accelerate takes for a skip, beside ours: it misses those of fused optimizers."""
        trainings, accelerator = self._trainings, self._accelerator()
        step = trainings.next_step
        if accelerator is None or accelerator.scaler is None or step is None or step == self._told:
            return
        if trainings.is_complete and trainings.run is not None:
            self._told = step
            trainings.run.log({"accelerate/skipped": float(accelerator.optimizer_step_was_skipped)})

    def _after_backward(self, loss: Any) -> None:
        accelerator = self._accelerator()
        if accelerator is None or not hasattr(loss, "detach"):
            return
        parts = accelerator.gradient_accumulation_steps
        value = loss.detach() if parts == 1 else loss.detach() / parts  # as `backward` divides it
        try:
            self._trainings.micro_batch(value, divided_by=None if self.is_summed else parts)
        except StopTraining as stop:
            self.stop = stop

    def _clipped(self, norm: Any) -> None:
        run = self._trainings.run
        if norm is not None and run is not None:
            run.log({"accelerate/grad_norm": norm})


_followers: dict[int, Losses] = {}
"""By id of the Accelerator, from `follow` to `leave` or the Accelerator's end."""
_followed_classes: dict[type, type] = {}


def follow(accelerator: Any, losses: Losses) -> None:
    """Tells of every `backward` and clipping from now on."""
    cls = type(accelerator)
    if cls not in _followed_classes.values():
        if cls not in _followed_classes:
            _followed_classes[cls] = _make(cls)
        accelerator.__class__ = _followed_classes[cls]
        weakref.finalize(accelerator, _followers.pop, id(accelerator), None)
    _followers[id(accelerator)] = losses


def leave(accelerator: Any) -> None:
    """Gives the Accelerator its own class back."""
    _followers.pop(id(accelerator), None)
    if type(accelerator) in _followed_classes.values():
        accelerator.__class__ = type(accelerator).__bases__[0]


def _make(base: type) -> type:
    plain = cast(Any, base)

    def backward(self: Any, loss: Any, *args: Any, **kwargs: Any) -> Any:
        losses = _followers.get(id(self))
        if losses is None:
            return plain.backward(self, loss, *args, **kwargs)
        losses.before_backward()
        result = plain.backward(self, loss, *args, **kwargs)
        losses.after_backward(loss)
        if losses.stop is not None and not losses.is_summed:
            stop, losses.stop = losses.stop, None
            raise stop  # out of the program's own loop
        return result

    def clip_grad_norm_(self: Any, *args: Any, **kwargs: Any) -> Any:
        norm = plain.clip_grad_norm_(self, *args, **kwargs)
        if self.sync_gradients and (losses := _followers.get(id(self))) is not None:
            losses.clipped(norm)
        return norm

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        followed = type(self)
        self.__class__ = base
        try:
            return self.__reduce_ex__(protocol)
        finally:
            self.__class__ = followed

    overrides: dict[str, Callable[..., Any]] = {
        "backward": backward, "clip_grad_norm_": clip_grad_norm_, "__reduce_ex__": __reduce_ex__,
    }  # fmt: skip
    body = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__, **overrides}
    return type(base.__name__, (base,), body)


class HalfscopeTracker:
    """`Accelerator(log_with=HalfscopeTracker())`: what `accelerator.log` is given goes to the run that is on.

    `watch(accelerator)` adds one by itself. Made by hand it is for `log_with=`, and `watch` then uses it.
    """

    name = "halfscope"
    requires_logging_directory = False
    main_process_only = True

    def __new__(cls, *arguments: Any, **options: Any) -> HalfscopeTracker:
        INTEGRATION.require()
        from accelerate.tracking import GeneralTracker

        made: HalfscopeTracker = object.__new__(with_base(cls, (GeneralTracker,)))
        return made

    def __init__(self) -> None:
        self.trainings: Trainings | None = None
        """Of the run that it logs to; set by `watch`."""
        self.config: dict[str, Any] = {}
        """What `accelerator.init_trackers` was given, for a run that begins later."""

    def __reduce__(self) -> tuple[Any, ...]:
        return without_base(type(self)), ()

    @property
    def tracker(self) -> Run | None:
        """The run."""
        return None if self.trainings is None else self.trainings.run

    def start(self) -> None:
        """The run begins when there is something to watch."""

    def store_init_configuration(self, values: Mapping[str, Any]) -> None:
        """Settings that the program gives to its trackers: before `watch`, they are of the run's configuration."""
        self.config.update(values)

    def log(self, values: Mapping[str, Any], step: int | None = None, **other: Any) -> None:
        """Numbers of the current step; the loss that is logged is a series beside the raw one."""
        from halfscope.integrations.trainings import named_apart

        run = self.tracker
        if run is not None:
            run.log(named_apart(values, "accelerate"))

    def finish(self) -> None:
        """`accelerator.end_training()`: the run is over."""
        if self.trainings is not None:
            self.trainings.end()


def _trackers(accelerator: Any) -> list[HalfscopeTracker]:
    """Those that the program gave it, else a new one that it has from now on."""
    given = {id(each): each for each in (*accelerator.trackers, *accelerator.log_with)}
    found = [each for each in given.values() if isinstance(each, HalfscopeTracker)]
    if not found:
        found = [HalfscopeTracker()]
        accelerator.trackers.append(found[0])
    return found


def _one(items: list[Any]) -> Any:
    return items[0] if len(items) == 1 else list(items)


def _adopt(accelerator: Any, launching: Launching) -> None:
    from halfscope.instrument.names import unwrap_optimizer

    trainings = Trainings({})
    trainings.launching, trainings.follows_launching = launching, True
    follow(accelerator, Losses(trainings, accelerator))
    for tracker in _trackers(accelerator):
        tracker.trainings = trainings
    ref = weakref.ref(accelerator)

    def described(optimizers: Sequence[Any]) -> dict[str, Any]:
        made = ref()
        own = [] if made is None else [unwrap_optimizer(each) for each in made._optimizers]
        if not any(each is other for each in own for other in optimizers):
            return {}
        return _config(made, _trackers(made))

    launching.describe(described)


INTEGRATION = Integration(
    id="accelerate",
    title="Accelerate",
    packages={"accelerate": "1.1.0"},
    made={"accelerate.accelerator": "Accelerator"},
    adopt=_adopt,
)
