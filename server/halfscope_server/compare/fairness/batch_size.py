"""Samples or tokens of a step, all ranks and micro-batches together."""

from __future__ import annotations

from halfscope_server.compare.align import usual_size
from halfscope_server.compare.fairness.base import ValueCheck
from halfscope_server.query.format import number
from halfscope_server.query.view import RunView


def _size(view: RunView) -> tuple[tuple[str, float], ...] | None:
    """Of what is known, in the order samples, tokens."""
    found = tuple((name, size) for name in ("samples", "tokens") if (size := _usual(view, name)) is not None)
    return found or None


def _usual(view: RunView, name: str) -> float | None:
    return view.memo(("batch", name), lambda: usual_size(view, "samples" if name == "samples" else "tokens"))


def _tell(sizes: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{number(size)} {name}" for name, size in sizes)


CHECK = ValueCheck(
    id="batch_size",
    title="Batch size",
    order=1,
    read=_size,
    tell=_tell,
    confounds=("quality", "speed", "memory"),
    missing="the samples of a step are not known, or not the same in all of them",
)
