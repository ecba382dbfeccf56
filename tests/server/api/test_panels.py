"""A run's panels through the API."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient


@pytest.fixture(scope="module")
def client(reading: TestClient) -> TestClient:
    """Nothing here changes anything."""
    return reading


@pytest.fixture
def run_id() -> str:
    """The run that the server of this module holds."""
    return "01hwtestrun00000"


def _panels(client: TestClient, run_id: str) -> list[dict[str, object]]:
    found = client.get(f"/api/v1/runs/{run_id}/panels").json()["panels"]
    assert found
    return list(found)


def test_every_listed_panel_can_be_had_whole_and_as_a_table(client: TestClient, run_id: str) -> None:
    """Skeleton and fill belong together, and the table has a cell for every column."""
    for info in _panels(client, run_id):
        path = f"/api/v1/runs/{run_id}/panels/{quote(str(info['id']))}"
        figure = client.get(path).json()
        assert figure["info"] == info
        assert figure["fill"]["panel"] == info["id"]
        assert len(figure["fill"]["data"]) <= len(figure["skeleton"]["data"])
        table = client.get(path + "/table").json()
        assert all(len(row) == len(table["columns"]) for row in table["rows"])


def test_names_with_markup_reach_no_figure_unescaped(client: TestClient, run_id: str) -> None:
    """Plotly reads some HTML in titles, legends and hover texts; a series name comes from anywhere."""
    seen = 0
    for info in _panels(client, run_id):
        figure = client.get(f"/api/v1/runs/{run_id}/panels/{quote(str(info['id']))}").json()
        drawn = json.dumps([figure["skeleton"], figure["fill"]["data"], figure["fill"]["layout"]])
        assert "<img" not in drawn
        seen += "&lt;img" in drawn
    assert seen > 0, "no panel drew the series with markup in its name"


def test_window_narrows_what_is_drawn(client: TestClient, run_id: str) -> None:
    """first and last are the steps asked for."""
    path = f"/api/v1/runs/{run_id}/panels/loss"
    whole = client.get(path).json()["fill"]
    part = client.get(path, params={"first": 50, "last": 80}).json()["fill"]
    assert (whole["first_step"], whole["last_step"]) == (0, 199)
    assert (part["first_step"], part["last_step"]) == (50, 80)
    assert whole["skeleton_id"] == part["skeleton_id"]


@pytest.mark.parametrize(
    "query", [{"x": "epoch"}, {"first": "now"}, {"width_px": 10}, {"width_px": 10**6}, {"smooth": 1}, {"what": 1}]
)
def test_window_that_makes_no_sense_is_refused(client: TestClient, run_id: str, query: dict[str, object]) -> None:
    """By name, before anything is computed."""
    response = client.get(f"/api/v1/runs/{run_id}/panels/loss", params=query)  # type: ignore[arg-type]
    assert response.status_code == 422
    assert next(iter(query)) in response.json()["detail"]


@pytest.mark.parametrize("query", [{"first": "nan"}, {"last": "inf"}, {"first": "1e400"}, {"first": 100, "last": 50}])
def test_odd_windows_do_not_break_a_panel(client: TestClient, run_id: str, query: dict[str, object]) -> None:
    """Whatever a hand-written address holds."""
    response = client.get(f"/api/v1/runs/{run_id}/panels/loss", params=query)  # type: ignore[arg-type]
    assert response.status_code in (200, 422)


def test_unknown_panel_is_not_found(client: TestClient, run_id: str) -> None:
    """Also its table."""
    for path in ("nothing", "nothing/table", "a/b/c"):
        assert client.get(f"/api/v1/runs/{run_id}/panels/{path}").status_code == 404


def test_theme_has_the_same_roles_in_light_and_dark(client: TestClient) -> None:
    """Every role a figure may name is there in both."""
    theme = client.get("/api/v1/theme").json()
    assert theme["light"].keys() == theme["dark"].keys()
    assert {"fp16", "nonfinite", "streak", "page", "text"} <= theme["light"].keys()
