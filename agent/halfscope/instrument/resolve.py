"""Values that have arrived from a device, put where their slots were.

Invariant: afterwards an attempt from a device looks exactly like one from the host.
"""

from __future__ import annotations

import math

from halfscope.instrument.attempt import Attempt, GradientReading, OptimizerAttempt, Value, host
from halfscope.probes import gradients


def resolve(attempt: Attempt) -> None:
    """Reads every slot of an attempt whose flights have arrived."""
    for scaler in attempt.scalers:
        scaler.scale = host(scaler.scale)
        scaler.scale_next = host(scaler.scale_next)
        scaler.growth_tracker = host(scaler.growth_tracker)
    for part in attempt.optimizers:
        _optimizer(part)
    attempt.scaled_losses = tuple(host(value) for value in attempt.scaled_losses)
    attempt.declared_loss = host(attempt.declared_loss)
    if attempt.logged is not None:
        attempt.logged = {sid: host(value) for sid, value in attempt.logged.items()}
    attempt.pending = False


def _optimizer(part: OptimizerAttempt) -> None:
    flag: Value = part.found_inf
    if flag is not None and not isinstance(flag, float):
        part.found_inf = host(flag)
        part.num_applied = 0 if part.found_inf else part.num_returned
    part.learning_rates = [host(rate) for rate in part.learning_rates]
    if part.reading is not None:
        _reading(part.reading)
    if part.clipped_norms:
        if not part.skipped:
            part.norm_clipped = gradients.total([norm for slot in part.clipped_norms for norm in slot.read()])
        part.clipped_norms = ()


def _reading(reading: GradientReading) -> None:
    norms: list[float] = []
    for _, slot in reading.layer_norms:
        norms += slot.read()
    divide_by = host(reading.divide_by)
    reading.divide_by = divide_by
    if norms and divide_by:
        norm = math.hypot(*norms)
        if math.isfinite(norm):
            reading.norm = norm / divide_by
        else:
            reading.norm = gradients.total(norms, divide_by)
            reading.nonfinite = tuple(
                sorted(
                    positions[at]
                    for positions, slot in reading.layer_norms
                    for at in gradients.nonfinite_positions(slot.read())
                )
            )
    reading.layer_norms = ()
