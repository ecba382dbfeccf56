"""The version of the code: its commit, and whether it was changed since.

Most commits change nothing that a training does, so another one is told and makes nothing incomparable by itself; runs
of two commits are no repeats of each other all the same.
"""

from __future__ import annotations

from halfscope_server.compare.fairness.base import Check, Confounds, Finding, environment
from halfscope_server.query.format import MISSING
from halfscope_server.query.view import RunView


class _Code:
    id, title, order = "code", "Code version", 40
    confounds: tuple[Confounds, ...] = ()
    is_intended = False
    is_configuration = True

    def words(self, view: RunView) -> str:
        commit = environment(view, "git", "commit")
        if not isinstance(commit, str):
            return MISSING
        return commit[:10] + (" with changes" if environment(view, "git", "dirty") else "")

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        one, two = (environment(view, "git", "commit") for view in (baseline, other))
        if not one or not two:
            return Finding(state="unknown", text="no checkout was found where the training was started")
        if one != two:
            text = f"{str(two)[:10]} against {str(one)[:10]}; a change of the training between them would matter"
            return Finding(state="different", text=text)
        dirty = [environment(view, "git", "dirty") for view in (baseline, other)]
        if any(state is None for state in dirty):
            return Finding(state="unknown", text="one commit; whether files were changed is not known")
        if any(dirty):
            return Finding(state="unknown", text="one commit, with changes that were not committed")
        return Finding(state="same")


CHECK: Check = _Code()
