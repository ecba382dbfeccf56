"""A run's panels: which there are, one panel whole, and the same numbers as a table.

Must not import plotly: figures arrive from panels as plain data. Invariant: a panel that fails takes nothing else with
it; the client learns the request id and may ask again.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query

from halfscope_server import panels
from halfscope_server.api.models import PanelFigure, PanelInfo, PanelList, Table, Window
from halfscope_server.api.problems import RESPONSES, RUN_RESPONSES
from halfscope_server.api.runs import ExistingRun
from halfscope_server.errors import NotFound
from halfscope_server.query import RunView
from halfscope_server.query import Window as Part

router = APIRouter(prefix="/api/v1/runs/{run}/panels", tags=["panels"], responses={**RESPONSES, **RUN_RESPONSES})

PanelId = Annotated[str, Path(max_length=300, description="Id of a panel")]
WindowQuery = Annotated[Window, Query()]


@router.get("")
def list_panels(view: ExistingRun) -> PanelList:
    """The panels that have something to show for this run, in the order of the page."""
    return PanelList(panels=[PanelInfo.model_validate(panels.info(panel)) for panel in panels.for_run(view)])


# A panel's id may hold a slash: it can come from the name of a user's metric.
@router.get("/{panel:path}/table")
def get_panel_table(view: ExistingRun, panel: PanelId, window: WindowQuery) -> Table:
    """The numbers of a panel, for "Show as table"."""
    return Table.model_validate(panels.table(view, _existing(view, panel), part(window)), from_attributes=True)


@router.get("/{panel:path}")
def get_panel(view: ExistingRun, panel: PanelId, window: WindowQuery) -> PanelFigure:
    """A panel whole: skeleton and its first fill."""
    return PanelFigure.model_validate(panels.figure(view, _existing(view, panel), part(window)))


def part(window: Window) -> Part:
    """The window as the layers below know it."""
    return Part(**{**window.model_dump(include=set(Window.model_fields)), "rows": tuple(window.rows)})


def _existing(view: RunView, panel_id: str) -> panels.Panel:
    panel = panels.find(view, panel_id)
    if panel is None:
        raise NotFound(f"run {view.run_id} has no panel {panel_id!r} (now); the list of its panels says which it has")
    return panel
