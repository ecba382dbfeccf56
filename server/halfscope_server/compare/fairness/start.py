"""Where the runs begin: one that continues from a checkpoint has learned what another had not when it began."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import Check, Confounds, Finding
from halfscope_server.query.format import MISSING, integer
from halfscope_server.query.view import RunView

FEW_STEPS = 1
"""The very first step has no time before it: a run of which only that is known seems to begin one later."""


class _Start:
    id, title, order = "start", "Starting step", 69
    confounds: tuple[Confounds, ...] = ()
    is_intended = False
    is_configuration = True

    def words(self, view: RunView) -> str:
        return MISSING if view.span is None else integer(view.span.first_step)

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        if baseline.span is None or other.span is None:
            return Finding(state="unknown", text="before the first step")
        one, two = baseline.span.first_step, other.span.first_step
        if abs(one - two) <= FEW_STEPS:
            return Finding(state="same")
        text = f"{integer(two)} against {integer(one)}: what came before step {integer(max(one, two))} is not compared"
        return Finding(state="different", text=text)


CHECK: Check = _Start()
