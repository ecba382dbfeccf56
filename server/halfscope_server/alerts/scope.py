"""What a rule looks at: which runs, layers and ranks.

Must not evaluate. Invariant: a list that is empty holds everything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import numpy as np
from numpy.typing import NDArray

from halfscope_server.alerts.rule import Rule
from halfscope_server.store.types import RunRow


def covers(rule: Rule, run: RunRow) -> bool:
    """Whether a rule looks at a run."""
    scope = rule.scope
    return (
        _fits(scope.projects, [run.project])
        and _fits(scope.tags, run.tags)
        and _fits(scope.runs, [run.name, run.run_id])
    )


def layer_mask(rule: Rule, names: Sequence[str]) -> NDArray[np.bool_]:
    """[L] which layers a rule looks at."""
    patterns = rule.scope.layers
    if not patterns:
        return np.ones(len(names), np.bool_)
    return np.array([_fits(patterns, [name]) for name in names], np.bool_)


def _fits(patterns: Sequence[str], names: Iterable[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for name in names for pattern in patterns)
