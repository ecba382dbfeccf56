"""Frameworks that keep a loss scaler of their own: who reports it to the run, one function per convention.

    report = deepspeed(engine)             # behind deepspeed.initialize and halfscope.watch
    engine.backward(loss); engine.step(); report()

Imports neither framework: what is asked of their objects is a handful of attributes.
Invariant: a report tells a step with the scale that its backward pass had, not the one that was left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from halfscope.guard import Guard

_DEEPSPEED = {
    "growth_interval": ("scale_window",),
    "growth_factor": ("scale_factor",),
    "hysteresis": ("delayed_shift",),
    "min_scale": ("min_loss_scale", "min_scale"),
}
_MEGATRON = {
    name: (name,) for name in ("growth_interval", "growth_factor", "backoff_factor", "hysteresis", "min_scale")
}


def deepspeed(engine: Any, run: Any = None) -> Callable[[], None]:
    """Reports DeepSpeed's FP16 optimizers, with and without ZeRO: their scale, `overflow` and global gradient norm.

    Args:
        engine: what `deepspeed.initialize` returned.
        run: the run to tell; None: the one that began last.

    Returns:
        To be called behind each `engine.step()`; where that only accumulates, it tells nothing.

    Raises:
        TypeError: no engine of DeepSpeed's, or one without a loss scale.
    """
    optimizer: Any = getattr(engine, "optimizer", None)
    if not hasattr(optimizer, "overflow") or not hasattr(engine, "global_steps"):
        raise TypeError(
            f"saw {type(engine).__name__} with an optimizer of {type(optimizer).__name__}; expected an engine of "
            "deepspeed.initialize whose optimizer has `overflow`, as those for FP16 have. Others scale no losses, and "
            "there is nothing to report"
        )
    before, num_steps = _deepspeed_scale(optimizer), engine.global_steps
    holder = getattr(optimizer, "loss_scale_config", None) or getattr(optimizer, "loss_scaler", optimizer)
    settings = _settings(holder, _DEEPSPEED)

    def report() -> None:
        nonlocal before, num_steps
        if engine.global_steps == num_steps:
            return
        num_steps = engine.global_steps
        scale, before = before, _deepspeed_scale(optimizer)
        norm = engine.get_global_grad_norm() if hasattr(engine, "get_global_grad_norm") else None
        told = _told(run)
        if told is not None:
            told.report_scaler(
                "deepspeed", scale=scale, scale_next=before, skipped=bool(optimizer.overflow), **settings
            )
            if norm is not None:
                told.log({"deepspeed/grad_norm": norm})

    return _guarded(report)


def _deepspeed_scale(optimizer: Any) -> float:
    return float(optimizer.cur_scale if hasattr(optimizer, "cur_scale") else optimizer.loss_scale)


def megatron(optimizer: Any, run: Any = None) -> Callable[..., None]:
    """Reports Megatron's mixed-precision optimizers: `grad_scaler.scale`, read without waiting for its device.

    Args:
        optimizer: with a `grad_scaler`.
        run: the run to tell; None: the one that began last.

    Returns:
        To be called behind each step with all that it returned: `report(*optimizer.step())`.

    Raises:
        TypeError: it has no `grad_scaler` with a `scale`.
    """
    scaler: Any = getattr(optimizer, "grad_scaler", None)
    if not hasattr(scaler, "scale"):
        raise TypeError(
            f"saw {type(optimizer).__name__} whose `grad_scaler` is {type(scaler).__name__}; expected an optimizer of "
            "Megatron's with a grad_scaler, as it has in FP16. Others scale no losses, and there is nothing to report"
        )
    before = _copied(scaler.scale)
    settings = _settings(scaler, _MEGATRON)

    def report(was_updated: bool, grad_norm: Any = None, *other: Any) -> None:
        nonlocal before
        scale, before = before, _copied(scaler.scale)
        told = _told(run)
        if told is not None:
            told.report_scaler("megatron", scale=scale, scale_next=before, skipped=not was_updated, **settings)
            if grad_norm is not None:
                told.log({"megatron/grad_norm": grad_norm})

    return _guarded(report)


def _copied(scale: Any) -> Any:
    # Some versions change the tensor in place.
    return scale.detach().clone() if hasattr(scale, "detach") else scale


def _settings(holder: Any, names: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
    """Read once, before the training: some are tensors, for which a device would be waited for."""
    found = {key: next((getattr(holder, n) for n in tried if hasattr(holder, n)), None) for key, tried in names.items()}
    return {
        key: value if isinstance(value, (int, float)) else float(value)
        for key, value in found.items()
        if value is not None
    }


def _told(run: Any) -> Any:
    if run is not None:
        return run
    from halfscope.instrument.entry import newest_run

    return newest_run()


def _guarded(function: Callable[..., None]) -> Callable[..., None]:
    return Guard(lambda probe, error: None).wrap("report_scaler", function, keep=True)
