"""What a rank says of itself while it makes no step. Must not import torch.

Invariant: names and meanings alone.
"""

from __future__ import annotations

from halfscope.probes.spec import SeriesSpec

SERIES = (SeriesSpec(name="rank.standing_s", unit="s", reduction="max", labels=("phase",)),)

BETWEEN, ATTEMPT, REDUCTION = "between", "attempt", "reduction"
"""Between two attempts; in one that is not complete; all of its gradients are ready and not all are reduced."""
