"""How far the runs got: what is compared is what all have."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import Check, Confounds, Finding
from halfscope_server.query.format import MISSING, integer
from halfscope_server.query.view import RunView


class _Steps:
    id, title, order = "steps", "Steps done", 70
    confounds: tuple[Confounds, ...] = ()
    is_intended = is_configuration = False

    def words(self, view: RunView) -> str:
        return MISSING if view.span is None else integer(view.span.last_step + 1)

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        if baseline.span is None or other.span is None:
            return Finding(state="unknown", text="before the first step")
        one, two = baseline.span.last_step + 1, other.span.last_step + 1
        if one == two:
            return Finding(state="same")
        text = f"{integer(two)} against {integer(one)}: the first {integer(min(one, two))} are compared"
        return Finding(state="different", text=text)


CHECK: Check = _Steps()
