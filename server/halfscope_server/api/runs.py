"""Runs: the list with its filters, one run's summary, rename, tags, delete; strip, series and configuration.

Must not import plotly or sqlalchemy. Invariant: a run that was deleted answers 410 with its name on every one of these
routes, one that never was 404, and only DELETE removes anything.
"""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query

from halfscope_server.api.auth import wall_clock_us
from halfscope_server.api.models import (
    Rug,
    RunConfig,
    RunList,
    RunPatch,
    RunSummary,
    SeriesItem,
    SeriesList,
    Strip,
)
from halfscope_server.api.problems import RESPONSES, RUN_RESPONSES
from halfscope_server.api.services import Services, ServicesNow, get_services
from halfscope_server.errors import InvalidRequest, NotFound, RunDeleted
from halfscope_server.query import RunView, config_sections, event_rug, health_strip, summarise, underflow_strip
from halfscope_server.query import list_runs as find_runs
from halfscope_server.query.window import MARK_PX

router = APIRouter(prefix="/api/v1/runs", tags=["runs"], responses=RESPONSES)

State = Literal["waiting", "live", "finished", "failed", "killed", "lost", "superseded"]
RunId = Annotated[str, Path(pattern=r"^[0-9A-Za-z_-]{1,64}$", description="Id of a run")]
Bins = Annotated[int, Query(ge=10, le=4000, description="Cells of the health strip")]


def existing_run(run: RunId, services: Annotated[Services, Depends(get_services)]) -> RunView:
    """The newest view of a run that is there.

    Raises:
        RunDeleted: it was there.
        NotFound: it never was.
    """
    view = services.views.get(run)
    if view is not None:
        return view
    deleted = services.store.deleted_run(run)
    if deleted is not None:
        name, deleted_us = deleted
        raise RunDeleted(run, name, deleted_us)
    raise NotFound(f"there is no run {run} here; GET /api/v1/runs lists those that are")


ExistingRun = Annotated[RunView, Depends(existing_run)]


@router.get("")
def list_runs(
    services: ServicesNow,
    search: Annotated[
        str, Query(max_length=200, description="Words that name, project, id or a tag must contain")
    ] = "",
    project: Annotated[list[str] | None, Query(description="Any of these projects")] = None,
    precision: Annotated[list[str] | None, Query(description="Any of these precision labels")] = None,
    state: Annotated[list[State] | None, Query(description="Any of these states")] = None,
    tag: Annotated[list[str] | None, Query(description="All of these tags")] = None,
    strip_bins: Bins = 320,
) -> RunList:
    """Runs that fit the filters, live ones first, then the newest."""
    found = find_runs(
        services.store,
        services.views,
        search=search,
        projects=project or (),
        precisions=precision or (),
        states=state or (),
        tags=tag or (),
        strip_bins=strip_bins,
    )
    return RunList.model_validate(found, from_attributes=True)


@router.get("/{run}", responses=RUN_RESPONSES)
def get_run(view: ExistingRun, services: ServicesNow, strip_bins: Bins = 320) -> RunSummary:
    """One run: state, verdict, the numbers of its row and its sentence."""
    return RunSummary.model_validate(summarise(view, strip_bins), from_attributes=True)


@router.patch("/{run}", responses=RUN_RESPONSES)
def change_run(view: ExistingRun, patch: RunPatch, services: ServicesNow) -> RunSummary:
    """Rename a run or replace its tags; what is not given stays."""
    if patch.name is not None:
        if not patch.name.strip():
            raise InvalidRequest("the new name is blank; expected at least one visible character")
        services.store.rename_run(view.run_id, patch.name.strip())
    if patch.tags is not None:
        services.store.set_tags(view.run_id, list(dict.fromkeys(tag.strip() for tag in patch.tags if tag.strip())))
    services.hub.changed(view.run_id)
    return RunSummary.model_validate(summarise(existing_run(view.run_id, services), 320), from_attributes=True)


@router.delete("/{run}", status_code=204, responses=RUN_RESPONSES)
def delete_run(view: ExistingRun, services: ServicesNow) -> None:
    """Delete a run with all its data; its agents are told to stop sending it."""
    services.store.delete_run(view.run_id, now_us=wall_clock_us())
    services.hub.changed(view.run_id)


@router.get("/{run}/strip", responses=RUN_RESPONSES)
def get_strip(
    view: ExistingRun,
    services: ServicesNow,
    bins: Bins = 800,
    first_step: int | None = None,
    last_step: int | None = None,
    lane: Annotated[
        Literal["steps", "underflow"],
        Query(description="The upper lane, of every step, or the lower one: underflow of the worst layer"),
    ] = "steps",
) -> Strip | None:
    """A lane of the health strip over a run or a part of it; null before the first step, and the lower one where no
    layer was sketched."""
    build = underflow_strip if lane == "underflow" else health_strip
    found = build(view, bins, first_step, last_step)
    return None if found is None else Strip.model_validate(found, from_attributes=True)


@router.get("/{run}/rug", responses=RUN_RESPONSES)
def get_rug(
    view: ExistingRun,
    width_px: Annotated[int, Query(ge=10, le=4000, description="Width of the line that the events lie on")] = 800,
    first_step: int | None = None,
    last_step: int | None = None,
) -> Rug | None:
    """Every event of a run or of a part of it on one line, close ones together; null before the first step."""
    found = event_rug(view, width_px // MARK_PX, first_step, last_step)
    return None if found is None else Rug.model_validate(found, from_attributes=True)


@router.get("/{run}/series", responses=RUN_RESPONSES)
def list_series(view: ExistingRun, services: ServicesNow) -> SeriesList:
    """Every series of a run."""
    return SeriesList(
        series=[
            SeriesItem(
                id=str(series.series_id),
                name=series.name,
                labels=dict(series.labels),
                unit=series.unit,
                kind=series.kind,
                reduction=series.reduction,
            )
            for series in view.series
        ]
    )


@router.get("/{run}/config", responses=RUN_RESPONSES)
def get_config(view: ExistingRun, services: ServicesNow) -> RunConfig:
    """What the run was started with: configuration, environment, precision, memory."""
    sections = config_sections(view.row)
    return RunConfig.model_validate({"sections": sections}, from_attributes=True)
