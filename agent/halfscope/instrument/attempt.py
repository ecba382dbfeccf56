"""What is known of one attempt to update, gathered while it runs.

Plain mutable records, filled by hooks, read once by the reporter. Their defaults are attributes of the class: one of
each is made at every step, and then holds only what was set in that step, which costs a quarter of a dataclass with all
its fields. So no default may be mutable.
Invariant: a `Value` is a float on the host, or a `Slot` until the device has delivered it; after `resolve` no slot is
left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from halfscope.instrument.device import InFlight, Slot
from halfscope.probes.inputs import InputReading

if TYPE_CHECKING:
    from halfscope.instrument.ddp.noting import Reduction
    from halfscope.instrument.sketching import TakenSketch

Value = float | Slot | None

InputLook = InputReading | tuple[str, Slot]
"""One look at an input batch; of a device the argument's name, and what is on its way."""

Point = Literal["unscale", "scaled_step", "clip", "closure", "step"]
"""Where gradients were read: return of `unscale_`; pre-hook of a fused step, divided by the scale; entry of a
clipping function; end of the closure; pre-hook of the step."""


class GradientReading:
    """One look at an optimizer's gradients, unscaled and before any clipping that can be seen."""

    parameters: Sequence[int] = ()
    """ids of the parameters that had a gradient, in the order of `layer_norms`; of a finite one on the host not looked
    up."""
    norm: float | None = None
    nonfinite: tuple[int, ...] = ()
    """Positions within `parameters`."""
    layer_norms: Sequence[tuple[Sequence[int], Slot]] = ()
    """Per device: positions within `parameters`, and their norms on the way."""
    divide_by: Value = 1.0
    sketch: TakenSketch | None = None
    update: TakenSketch | None = None
    """Of the changes that the step made, where it was looked at."""

    def __init__(self, point: Point, clipped: Literal["no", "maybe"]) -> None:
        self.point = point
        self.clipped = clipped


class OptimizerAttempt:
    """One optimizer's share of an attempt."""

    through_scaler: bool = False
    """`scaler.step(optimizer)` returned in this attempt."""
    num_calls: int = 0
    """How often `optimizer.step` was called."""
    num_returned: int = 0
    """How often it returned instead of raising. On the fused path that proves nothing."""
    num_applied: int = 0
    user_unscaled: bool = False
    reading: GradientReading | None = None
    norm_clipped: float | None = None
    clipped_norms: Sequence[Slot] = ()
    found_inf: Value = None
    """Only of fused optimizers: the device's own flag."""
    scaler: int = 0
    learning_rates: Sequence[Value] = ()

    @property
    def skipped(self) -> bool:
        """The scaler withheld the step."""
        return self.through_scaler and self.num_applied == 0


class ScalerAttempt:
    """One scaler's share of an attempt."""

    touched: bool = False
    updated: bool = False
    scale: Value = None
    scale_next: Value = None
    growth_tracker: Value = None
    was_set: bool = False
    """`update(new_scale)` was called."""


class Attempt:
    """One attempt to update, from its first backward pass to the beginning of the next."""

    step: int = 0
    completed_us: int = 0
    """Wall clock."""
    completed_ns: int = 0
    """Of the monotonic clock."""
    own_ns: int = 0
    """What watching had cost in all when the attempt closed."""
    notable: bool = False
    """Something of it is an event, so it is told at once and not with the next batch."""
    step_s: float = 0.0
    idle_ns: int = 0
    """From its completion to the next forward pass; 0: not seen, or not known of this device."""
    between_s: float = 0.0
    """The same of the attempt before: a part of this one's time."""
    cost_share: float | None = None
    scaled_losses: tuple[Value, ...] = ()
    declared_loss: Value = None
    samples: float | None = None
    tokens: float | None = None
    inferred_samples: int = 0
    logged: dict[int, Value] | None = None
    """By series: of several values of one step the last counts."""
    update_missing: bool = False
    pending: bool = False
    """Some value is still on the device."""
    flights: Sequence[InFlight] = ()
    sketch_flights: tuple[InFlight, ...] = ()
    is_sketched: bool = False
    inputs: tuple[InputLook, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    """Of all gradients of a model over ranks, one for each backward pass that ended in one."""
    judged: bool = False
    loss_told: bool = False

    calm_norm: float | None = None
    """Of a calm step (see `calm.py`), before anybody asked for its `optimizers`: what is known of the only one."""
    calm_rate: float | None = None
    """Likewise, once its step has returned."""

    def __init__(self, optimizers: list[OptimizerAttempt] | None, scalers: list[ScalerAttempt]) -> None:
        """
        Args:
            optimizers: None: there is one, and its share is made when it is asked for.
        """
        self._optimizers = optimizers
        self.scalers = scalers

    @property
    def optimizers(self) -> list[OptimizerAttempt]:
        """The share of each optimizer."""
        parts = self._optimizers
        if parts is None:
            parts = self._optimizers = [self._calm_part()]
        return parts

    @property
    def is_blank(self) -> bool:
        """Nothing is known of its only optimizer."""
        return self._optimizers is None and self.calm_norm is None

    @property
    def is_calm(self) -> bool:
        """Nothing is known of its optimizer but the norm of its gradients, and perhaps that it stepped."""
        return self._optimizers is None and self.calm_norm is not None

    def _calm_part(self) -> OptimizerAttempt:
        part = OptimizerAttempt()
        if self.calm_norm is not None:
            part.num_calls = 1
            part.reading = GradientReading("step", "maybe")
            part.reading.norm = self.calm_norm
        if self.calm_rate is not None:
            part.num_returned = part.num_applied = 1
            part.learning_rates = (self.calm_rate,)
        return part

    def arrived(self) -> bool:
        """Whether every value has reached the host. Asks the events; waits for nothing."""
        return all(flight.event.query() for flight in self.flights)

    def is_bad(self) -> bool:
        """Whether something of it is known not to be finite: its loss, or a gradient that was read or withheld."""
        loss = self.loss
        return (loss is not None and not math.isfinite(loss)) or any(
            part.skipped or (part.reading is not None and bool(part.reading.nonfinite)) for part in self.optimizers
        )

    @property
    def loss(self) -> float | None:
        """Raw loss: what `run.step(loss=)` gave, else the sum of what went into `scaler.scale`."""
        if isinstance(self.declared_loss, float):
            return self.declared_loss
        if not self.scaled_losses:
            return None
        known = [value for value in self.scaled_losses if isinstance(value, float)]
        return sum(known) if known else None


def host(value: Value) -> float | None:
    """A value that has arrived, as a float; None where there is none."""
    if isinstance(value, Slot):
        return value.read()[0]
    return value
