"""Live dashboard for the numerical health of mixed-precision training: the part that runs inside a training job.

    run = halfscope.watch(model, optimizer, scaler)
    run.step(loss=loss)

Invariant: importing this imports no torch and starts nothing; names are resolved when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from halfscope._version import __version__

if TYPE_CHECKING:
    from halfscope import comm_hooks
    from halfscope.alerts import Alert, StopTraining
    from halfscope.comparing import CompareError, Comparison, compare
    from halfscope.instrument.ddp.wrapping import wrap_comm_hook
    from halfscope.instrument.entry import report_scaler, watch
    from halfscope.instrument.run import Run
    from halfscope.probes.sketches import sketch_of
    from halfscope.tensors import compare_tensors

__all__ = [
    "Alert",
    "CompareError",
    "Comparison",
    "Run",
    "StopTraining",
    "__version__",
    "comm_hooks",
    "compare",
    "compare_tensors",
    "report_scaler",
    "sketch_of",
    "watch",
    "wrap_comm_hook",
]

_HOMES = {
    "Alert": "halfscope.alerts",
    "StopTraining": "halfscope.alerts",
    "CompareError": "halfscope.comparing",
    "Comparison": "halfscope.comparing",
    "compare": "halfscope.comparing",
    "report_scaler": "halfscope.instrument.entry",
    "watch": "halfscope.instrument.entry",
    "Run": "halfscope.instrument.run",
    "sketch_of": "halfscope.probes.sketches",
    "compare_tensors": "halfscope.tensors",
    "comm_hooks": "halfscope.comm_hooks",
    "wrap_comm_hook": "halfscope.instrument.ddp.wrapping",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'halfscope' has no attribute {name!r}")
    import importlib

    module = importlib.import_module(home)
    value = module if home == f"{__name__}.{name}" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
