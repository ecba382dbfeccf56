"""The seed of torch's generator when watching began."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import ValueCheck, fact
from halfscope_server.query.view import RunView


def _seed(view: RunView) -> str | None:
    found = fact(view, "seed")
    return None if found is None else str(found)


def _tell(seed: str) -> str:
    # torch draws 63 bits where nobody sets one.
    return seed if len(seed) <= 10 else "drawn by torch"


CHECK = ValueCheck(
    id="seed", title="Seed", order=10, read=_seed, tell=_tell, confounds=("quality",), is_configuration=False
)
