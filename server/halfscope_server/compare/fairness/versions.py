"""Versions of what computes: torch, CUDA, cuDNN and Python."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import ValueCheck, environment
from halfscope_server.query.view import RunView

NAMES = ("torch", "cuda", "cudnn", "python")


def _versions(view: RunView) -> tuple[tuple[str, str], ...] | None:
    found = tuple((name, str(version)) for name in NAMES if (version := environment(view, name)))
    return found or None


def _tell(versions: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions)


CHECK = ValueCheck(
    id="versions",
    title="Library versions",
    order=50,
    read=_versions,
    tell=_tell,
    confounds=("quality", "speed", "memory"),
)
