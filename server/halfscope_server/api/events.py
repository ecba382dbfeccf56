"""A run's events, page by page.

Must not import sqlalchemy. Invariant: following `next_cursor` to its end yields every event of the range once, also
while new ones arrive.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from halfscope_server.api.models import EventPage
from halfscope_server.api.problems import RESPONSES, RUN_RESPONSES
from halfscope_server.api.runs import ExistingRun
from halfscope_server.errors import InvalidRequest
from halfscope_server.query.events import BadCursor, events_page

router = APIRouter(prefix="/api/v1/runs/{run}/events", tags=["events"], responses={**RESPONSES, **RUN_RESPONSES})


@router.get("")
def list_events(
    view: ExistingRun,
    kind: Annotated[list[str] | None, Query(description="Any of these kinds; all without it")] = None,
    first_step: int | None = None,
    last_step: int | None = None,
    rank: Annotated[int | None, Query(ge=0, lt=2**31, description="Only of this rank; of all without it")] = None,
    newest_first: bool = False,
    cursor: Annotated[str | None, Query(max_length=200, description="next_cursor of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
) -> EventPage:
    """Events in the order they happened, or newest first."""
    try:
        page = events_page(
            view,
            kinds=kind,
            first_step=first_step,
            last_step=last_step,
            rank=rank,
            cursor=cursor,
            limit=limit,
            newest_first=newest_first,
        )
    except BadCursor as error:
        raise InvalidRequest(str(error)) from error
    return EventPage.model_validate(page, from_attributes=True)
