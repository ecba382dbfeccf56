"""A run's rows as JSONL or CSV, streamed: the same bytes for `halfscope export` and for a download in the browser.

Must not import sqlalchemy. Invariant: a row that was begun is whole, and a non-finite number is one of the strings NaN,
Infinity and -Infinity, never null.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse

from halfscope_server.api.problems import RESPONSES, RUN_RESPONSES
from halfscope_server.api.rows import MEDIA_TYPES, ExportFormat, chosen_kinds, encode
from halfscope_server.api.runs import ExistingRun
from halfscope_server.errors import InvalidRequest
from halfscope_server.query.export import export_rows

router = APIRouter(prefix="/api/v1/runs/{run}/export", tags=["export"], responses={**RESPONSES, **RUN_RESPONSES})

ExportKind = Literal["points", "events", "sketches"]


@router.get(
    "", response_class=StreamingResponse, responses={200: {"content": {kind: {} for kind in MEDIA_TYPES.values()}}}
)
def export_run(
    view: ExistingRun,
    kind: Annotated[
        list[ExportKind] | None, Query(description="Kinds of rows; all without it, points alone for CSV")
    ] = None,
    series: Annotated[str, Query(max_length=200, description="Glob over series names; points alone when given")] = "",
    format: ExportFormat = "jsonl",
) -> StreamingResponse:
    """Every recorded row of a run."""
    try:
        kinds = chosen_kinds(kind or (), series=series, format=format)
    except ValueError as error:
        raise InvalidRequest(str(error)) from error
    rows = export_rows(view, series=series or "*", kinds=kinds)
    return StreamingResponse(
        encode(rows, format, kind=kinds[0]),
        media_type=MEDIA_TYPES[format],
        headers={"Content-Disposition": f'attachment; filename="{view.run_id}.{format}"'},
    )
