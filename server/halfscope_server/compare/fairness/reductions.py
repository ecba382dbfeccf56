"""Whether half-precision matmuls may add up in half precision too."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import ValueCheck, fact
from halfscope_server.query.view import RunView

NAMES = {
    "allow_fp16_reduced_precision_reduction": "FP16 reductions",
    "allow_bf16_reduced_precision_reduction": "BF16 reductions",
    "allow_fp16_accumulation": "FP16 accumulation",
}


def _allowed(view: RunView) -> tuple[str, ...] | None:
    settings = fact(view, "settings")
    if not isinstance(settings, dict) or not settings.keys() & NAMES.keys():
        return None
    # A CPU has none of them, whatever the switches say.
    if fact(view, "device", "type") == "cpu":
        return ()
    return tuple(words for name, words in NAMES.items() if settings.get(name) is True)


CHECK = ValueCheck(
    id="reductions",
    title="Reduced-precision reductions",
    order=52,
    read=_allowed,
    tell=lambda allowed: ", ".join(allowed) or "none",
    confounds=("quality", "speed"),
)
