"""The ranks of a run: who agrees, who holds the others up, where NaN and Inf began, what a reduction got wrong.

Must not import plotly or sqlalchemy. Invariant: a report leaves as it was worked out, one for all who ask.
"""

from __future__ import annotations

import orjson
from fastapi import APIRouter, Response

from halfscope_server.api.problems import RESPONSES, RUN_RESPONSES
from halfscope_server.api.runs import ExistingRun
from halfscope_server.api.services import ServicesNow
from halfscope_server.ranks.types import RanksReport

router = APIRouter(prefix="/api/v1/runs", tags=["ranks"], responses=RESPONSES)


@router.get("/{run}/ranks", response_model=RanksReport, responses=RUN_RESPONSES)
def get_ranks(view: ExistingRun, services: ServicesNow) -> Response:
    """What is said of a run's ranks. A run of one process has one."""
    return Response(orjson.dumps(services.ranks.report(view)), media_type="application/json")
