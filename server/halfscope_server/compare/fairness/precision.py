"""The number format: what is being compared."""

from __future__ import annotations

from halfscope_server.compare.fairness.base import ValueCheck
from halfscope_server.query.states import precision_of

CHECK = ValueCheck(
    id="precision",
    title="Precision",
    order=0,
    read=lambda view: precision_of(view.row) or None,
    is_intended=True,
    missing="known after a run's first step",
)
