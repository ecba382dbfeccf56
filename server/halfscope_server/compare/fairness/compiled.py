"""Whether torch.compile had a hand in it."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import ValueCheck, fact, plain
from halfscope_server.query.view import RunView


def _compiled(view: RunView) -> bool | None:
    found = fact(view, "compiled")
    return found if isinstance(found, bool) else None


CHECK = ValueCheck(
    id="compiled",
    title="torch.compile",
    order=53,
    read=_compiled,
    tell=lambda is_compiled: "compiled" if is_compiled else plain(is_compiled),
    confounds=("speed", "memory"),
)
