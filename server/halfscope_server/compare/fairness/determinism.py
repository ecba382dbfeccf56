"""Deterministic algorithms and cuDNN's search for the fastest ones."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import ValueCheck, fact
from halfscope_server.query.view import RunView

NAMES = {
    "deterministic_algorithms": "deterministic algorithms",
    "cudnn_deterministic": "deterministic cuDNN",
    "cudnn_benchmark": "cuDNN benchmark",
}


def _switched_on(view: RunView) -> tuple[str, ...] | None:
    settings = fact(view, "settings")
    if not isinstance(settings, dict) or not settings.keys() & NAMES.keys():
        return None
    return tuple(words for name, words in NAMES.items() if settings.get(name) is True)


CHECK = ValueCheck(
    id="determinism",
    title="Determinism",
    order=54,
    read=_switched_on,
    tell=lambda names: ", ".join(names) or "as usual",
    confounds=("speed",),
)
