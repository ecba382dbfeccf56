"""The layer tree of a run.

Must not import plotly. Invariant: the window is the one that panels take, so that tree and charts show the same part.
"""

from __future__ import annotations

from fastapi import APIRouter

from halfscope_server.api.models import LayerTree
from halfscope_server.api.panels import WindowQuery, part
from halfscope_server.api.problems import RESPONSES, RUN_RESPONSES
from halfscope_server.api.runs import ExistingRun
from halfscope_server.query.layers import layer_tree

router = APIRouter(prefix="/api/v1/runs", tags=["layers"], responses=RESPONSES)


@router.get("/{run}/layers", responses=RUN_RESPONSES)
def get_layers(view: ExistingRun, window: WindowQuery) -> LayerTree:
    """Every layer whose gradient was sketched, with its modules, in forward order; `stat` chooses what is said of
    them."""
    return LayerTree.model_validate(layer_tree(view, part(window)), from_attributes=True)
