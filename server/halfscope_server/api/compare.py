"""Comparisons: the report, its panels, and those that were saved.

Must not import plotly or sqlalchemy. Invariant: a report leaves as it was worked out, one for all who ask; what is
asked has been bounded before.
"""

from __future__ import annotations

import secrets
from typing import Annotated

import orjson
from fastapi import APIRouter, Depends, Path, Query, Response

from halfscope_server.api.auth import wall_clock_us
from halfscope_server.api.compare_models import (
    CompareCandidates,
    ComparePanelQuery,
    CompareQuery,
    SaveComparison,
    SavedComparison,
    SavedComparisons,
    SavedMember,
)
from halfscope_server.api.models import PanelFigure, PanelInfo, PanelList, Table
from halfscope_server.api.panels import PanelId, part
from halfscope_server.api.problems import NOT_FOUND, RESPONSES, RUN_RESPONSES
from halfscope_server.api.runs import ExistingRun
from halfscope_server.api.services import Services, ServicesNow, get_services
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Options, Report
from halfscope_server.errors import NotFound
from halfscope_server.panels import compared as panels
from halfscope_server.panels.report import report_html
from halfscope_server.query.partners import baseline_of, candidates
from halfscope_server.query.states import precision_of, precision_role
from halfscope_server.store.types import ComparisonRow, RunRow

router = APIRouter(prefix="/api/v1", tags=["compare"], responses=RESPONSES)

SavedId = Annotated[str, Path(pattern=r"^[0-9A-Za-z_-]{1,64}$", description="Id of a saved comparison")]


def asked(query: CompareQuery, services: Services) -> Comparison:
    """The comparison that is asked for, as its runs are now."""
    runs = [run.strip() for run in query.runs.split(",") if run.strip()]
    return services.comparisons.get(runs, query.chosen())


def of_query(
    query: Annotated[CompareQuery, Query()], services: Annotated[Services, Depends(get_services)]
) -> Comparison:
    """As a dependency of routes."""
    return asked(query, services)


Asked = Annotated[Comparison, Depends(of_query)]


@router.get("/compare", response_model=Report, responses=RUN_RESPONSES)
def compare(comparison: Asked) -> Response:
    """What two to eight runs are like beside each other: fairness, quality, cost, stability, numerics, a verdict."""
    return Response(orjson.dumps(comparison.report), media_type="application/json")


@router.get("/compare/report.json", response_class=Response, responses=RUN_RESPONSES)
def export_compare_json(comparison: Asked) -> Response:
    """The report as a file."""
    data = orjson.dumps(comparison.report, option=orjson.OPT_INDENT_2)
    return Response(data, media_type="application/json", headers=_attachment(comparison, "json"))


@router.get("/compare/report.html", response_class=Response, responses=RUN_RESPONSES)
def export_compare_html(comparison: Asked) -> Response:
    """The report with its figures and tables as one file that needs no network and no server."""
    text = report_html(comparison, wall_clock_us())
    return Response(text, media_type="text/html; charset=utf-8", headers=_attachment(comparison, "html"))


def _attachment(comparison: Comparison, kind: str) -> dict[str, str]:
    # As a file: opened in place, the page's own policy would forbid its scripts.
    return {"Content-Disposition": f'attachment; filename="halfscope-{"-".join(comparison.key.split(",")[:2])}.{kind}"'}


@router.get("/compare/panels", responses=RUN_RESPONSES)
def list_compare_panels(comparison: Asked) -> PanelList:
    """The panels that have something to show of these runs, in the order of the page."""
    found = [PanelInfo.model_validate(panels.info(panel)) for panel in panels.available(comparison)]
    return PanelList(panels=found)


@router.get("/compare/panels/{panel}/table", responses=RUN_RESPONSES)
def get_compare_panel_table(
    panel: PanelId, query: Annotated[ComparePanelQuery, Query()], services: ServicesNow
) -> Table:
    """The numbers of a panel, for "Show as table"."""
    comparison = asked(query, services)
    return Table.model_validate(panels.table(comparison, _panel(comparison, panel), part(query)), from_attributes=True)


@router.get("/compare/panels/{panel}", responses=RUN_RESPONSES)
def get_compare_panel(
    panel: PanelId, query: Annotated[ComparePanelQuery, Query()], services: ServicesNow
) -> PanelFigure:
    """A panel whole: skeleton and its first fill, whose `run` is the report's `key`."""
    comparison = asked(query, services)
    return PanelFigure.model_validate(panels.figure(comparison, _panel(comparison, panel), part(query)))


@router.get("/runs/{run}/candidates", responses=RUN_RESPONSES)
def list_candidates(
    view: ExistingRun,
    services: ServicesNow,
    search: Annotated[
        str, Query(max_length=200, description="Words that name, project, id or a tag must contain")
    ] = "",
) -> CompareCandidates:
    """Runs to compare this one with, the nearest first: its baseline, then those of its name, tags and project."""
    baseline = baseline_of(services.store, view.row)
    found, total = candidates(view.row, services.store.list_runs(), baseline, search)
    return CompareCandidates(candidates=found, total=total)


# ---- saved -----------------------------------------------------------------------------------


@router.get("/comparisons")
def list_comparisons(services: ServicesNow) -> SavedComparisons:
    """Every saved comparison, the last changed first."""
    rows = {row.run_id: row for row in services.store.list_runs()}
    return SavedComparisons(comparisons=[_saved(services, row, rows) for row in services.store.comparisons.all()])


@router.post("/comparisons", status_code=201)
def save_comparison(body: SaveComparison, services: ServicesNow) -> SavedComparison:
    """Give a comparison a name, and an address that stays."""
    services.comparisons.get(body.runs, body.options.chosen())
    now_us = wall_clock_us()
    row = _row(secrets.token_hex(8), body, now_us)
    services.store.comparisons.add(row)
    return _saved(services, row)


@router.get("/comparisons/{comparison}", responses=NOT_FOUND)
def get_comparison(comparison: SavedId, services: ServicesNow) -> SavedComparison:
    """One saved comparison, with what became of its runs."""
    return _saved(services, _existing(comparison, services))


@router.put("/comparisons/{comparison}", responses=NOT_FOUND)
def change_comparison(comparison: SavedId, body: SaveComparison, services: ServicesNow) -> SavedComparison:
    """Replace name, runs and options. Runs that it had may be deleted ones, new ones must be there."""
    held = _existing(comparison, services)
    for run in set(body.runs) - set(held.runs):
        if services.store.get_run(run) is None:
            raise NotFound(f"there is no run {run} here; GET /api/v1/runs lists those that are")
    if not services.store.comparisons.change(_row(comparison, body, wall_clock_us())):
        raise _missing(comparison)
    return _saved(services, _existing(comparison, services))


@router.delete("/comparisons/{comparison}", status_code=204, responses=NOT_FOUND)
def delete_comparison(comparison: SavedId, services: ServicesNow) -> None:
    """Forget a saved comparison; its runs stay."""
    if not services.store.comparisons.delete(comparison):
        raise _missing(comparison)


def _existing(comparison: str, services: Services) -> ComparisonRow:
    row = services.store.comparisons.get(comparison)
    if row is None:
        raise _missing(comparison)
    return row


def _missing(comparison: str) -> NotFound:
    return NotFound(
        f"there is no saved comparison {comparison} (any more); GET /api/v1/comparisons lists those that are"
    )


def _row(comparison_id: str, body: SaveComparison, now_us: int) -> ComparisonRow:
    return ComparisonRow(
        comparison_id=comparison_id,
        name=body.name.strip(),
        runs=tuple(body.runs),
        options=body.options.model_dump(),
        created_us=now_us,
        updated_us=now_us,
    )


def _saved(services: Services, row: ComparisonRow, rows: dict[str, RunRow] | None = None) -> SavedComparison:
    """A row with its runs as they stand.

    Args:
        rows: all runs by id, where they were read already.
    """
    found = [rows.get(run) if rows is not None else services.store.get_run(run) for run in row.runs]
    options = Options(
        metric=row.options["metric"], align=row.options["align"], tolerance_share=row.options["tolerance"]
    )
    return SavedComparison(
        id=row.comparison_id,
        name=row.name,
        runs=[_member(services, run_id, run) for run_id, run in zip(row.runs, found, strict=True)],
        options=options,
        created_us=row.created_us,
        updated_us=row.updated_us,
    )


def _member(services: Services, run_id: str, row: RunRow | None) -> SavedMember:
    if row is None:
        name, deleted_us = services.store.deleted_run(run_id) or (run_id, None)
        nothing = {"project": "", "precision": "", "precision_role": "", "state": ""}
        return SavedMember(id=run_id, name=name, is_deleted=True, deleted_us=deleted_us, **nothing)
    return SavedMember(
        id=run_id,
        name=row.name,
        project=row.project,
        precision=precision_of(row),
        precision_role=precision_role(row),
        state=row.state,
        is_deleted=False,
    )


def _panel(comparison: Comparison, panel_id: str) -> panels.ComparePanel:
    panel = panels.find(comparison, panel_id)
    if panel is None:
        raise NotFound(f"these runs have no panel {panel_id!r} (now); the list of their panels says which they have")
    return panel
