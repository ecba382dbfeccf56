"""The runs' routes: list and filters, summary, rename, tags, delete, strip, rug, series, configuration."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from halfscope_server.api.services import Services
from starlette.testclient import TestClient


@pytest.fixture
def three_runs(services: Services, record: Callable[..., None], make_records: Callable[..., Any]) -> None:
    """Two finished and one live, in two projects."""
    record(services.store, "run00000000000a1", make_records(name="fp16-cnn", project="digits"))
    record(services.store, "run00000000000b2", make_records(name="fp32-cnn", project="digits"))
    record(services.store, "run00000000000c3", make_records(name="other", project="words", ended=False))


def test_empty_server_lists_nothing(client: TestClient) -> None:
    """What the web app's empty state starts from."""
    assert client.get("/api/v1/runs").json() == {"runs": [], "total": 0, "projects": [], "tags": [], "precisions": []}


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({}, ["other", "fp16-cnn", "fp32-cnn"]),
        ({"search": "CNN"}, ["fp16-cnn", "fp32-cnn"]),
        ({"search": "digits fp32"}, ["fp32-cnn"]),
        ({"project": ["words"]}, ["other"]),
        ({"project": ["words", "digits"], "search": "fp16"}, ["fp16-cnn"]),
        ({"state": ["live"]}, ["other"]),
        ({"precision": ["FP16-AMP"], "state": ["finished"]}, ["fp16-cnn", "fp32-cnn"]),
        ({"precision": ["BF16"]}, []),
        ({"tag": ["demo", "tiny"]}, ["other", "fp16-cnn", "fp32-cnn"]),
        ({"tag": ["demo", "none"]}, []),
    ],
)
@pytest.mark.usefixtures("three_runs")
def test_filters_go_together_and_live_runs_come_first(
    client: TestClient, query: dict[str, Any], names: list[str]
) -> None:
    """Each filter narrows; the total and what there is to filter by stay those of all runs."""
    found = client.get("/api/v1/runs", params=query).json()
    assert [run["name"] for run in found["runs"]] == names
    assert found["total"] == 3
    assert found["projects"] == ["digits", "words"]
    assert found["precisions"] == ["FP16-AMP"]


def test_summary_says_what_was_recorded(client: TestClient, run_id: str) -> None:
    """The numbers of the run that was written, and a strip of the width asked for."""
    found = client.get(f"/api/v1/runs/{run_id}", params={"strip_bins": 50}).json()
    assert (found["first_step"], found["last_step"], found["state"]) == (0, 199, "finished")
    assert found["skips"]["total"] == 1
    assert found["scale"] == 32768.0
    assert found["loss"] == pytest.approx(2.0 / 200)
    assert found["precision"] == "FP16-AMP"
    assert found["demo"] is True
    assert len(base64.b64decode(found["strip"]["cells"])) == found["strip"]["num_bins"] == 50


def test_rename_and_tags_change_only_what_is_given(client: TestClient, run_id: str) -> None:
    """Blanks around a name go; a tag given twice is one."""
    renamed = client.patch(f"/api/v1/runs/{run_id}", json={"name": "  better name "})
    assert (renamed.json()["name"], renamed.json()["tags"]) == ("better name", ["demo", "tiny"])
    tagged = client.patch(f"/api/v1/runs/{run_id}", json={"tags": ["a", "b", " a "]})
    assert (tagged.json()["name"], tagged.json()["tags"]) == ("better name", ["a", "b"])
    assert client.get(f"/api/v1/runs/{run_id}").json() == tagged.json()


@pytest.mark.parametrize(
    "body",
    [{"name": ""}, {"name": "   "}, {"name": "x" * 201}, {"tags": [""]}, {"tags": ["x"] * 33}, {"state": "live"}],
)
def test_changes_that_make_no_sense_are_refused(client: TestClient, run_id: str, body: dict[str, Any]) -> None:
    """And change nothing."""
    before = client.get(f"/api/v1/runs/{run_id}").json()
    response = client.patch(f"/api/v1/runs/{run_id}", json=body)
    assert response.status_code == 422
    assert response.json()["detail"]
    assert client.get(f"/api/v1/runs/{run_id}").json() == before


def test_deleted_run_answers_with_its_name_and_when(client: TestClient, run_id: str) -> None:
    """On every route of the run, so that an open page can say what happened."""
    assert client.delete(f"/api/v1/runs/{run_id}").status_code == 204
    for path in ("", "/strip", "/rug", "/series", "/config", "/panels", "/panels/loss", "/events", "/export"):
        response = client.get(f"/api/v1/runs/{run_id}{path}")
        assert (path, response.status_code) == (path, 410)
        body = response.json()
        assert (body["code"], body["run"], body["name"]) == ("run_deleted", run_id, "fp16-cnn")
        assert body["deleted_us"] > 1_600_000_000_000_000
    assert client.patch(f"/api/v1/runs/{run_id}", json={"name": "again"}).status_code == 410
    assert client.delete(f"/api/v1/runs/{run_id}").status_code == 410
    assert client.get("/api/v1/runs").json()["total"] == 0


@pytest.mark.parametrize("run", ["none", "x" * 64])
def test_run_that_never_was_is_not_found(client: TestClient, run: str) -> None:
    """404, where a deleted one is 410."""
    for path in ("", "/strip", "/panels", "/events", "/export"):
        assert client.get(f"/api/v1/runs/{run}{path}").status_code == 404
    assert client.delete(f"/api/v1/runs/{run}").status_code == 404


@pytest.mark.parametrize("run", ["x" * 65, "a.b", "%2e%2e", "a%00b", "'"])
def test_what_is_no_id_is_refused_before_the_database_sees_it(client: TestClient, run: str) -> None:
    """Letters, digits, dash and underscore."""
    assert client.get(f"/api/v1/runs/{run}/series").status_code in (404, 422)


def test_series_carry_names_as_they_are(client: TestClient, run_id: str) -> None:
    """Markup in a name is data here; escaping is for where it is drawn."""
    found = client.get(f"/api/v1/runs/{run_id}/series").json()["series"]
    names = [series["name"] for series in found]
    assert names == ["amp.scale", "loss", "time.step_s", "val/<img src=x onerror=alert(1)>"]
    assert all(isinstance(series["id"], str) for series in found)


def test_rug_counts_every_event(client: TestClient, run_id: str) -> None:
    """However narrow the line."""
    for width_px in (10, 800):
        rug = client.get(f"/api/v1/runs/{run_id}/rug", params={"width_px": width_px}).json()
        total = client.get(f"/api/v1/runs/{run_id}/events").json()["total"]
        assert sum(mark["count"] for mark in rug["marks"]) == rug["total"] == total


def test_config_shows_what_the_run_was_started_with(client: TestClient, run_id: str) -> None:
    """Sections of keys and values."""
    sections = {s["title"]: s["entries"] for s in client.get(f"/api/v1/runs/{run_id}/config").json()["sections"]}
    assert {"key": "lr", "value": "0.1", "note": ""} in sections["Configuration"]
    assert {"key": "torch", "value": "2.13", "note": ""} in sections["Environment"]


def test_run_without_a_step_has_no_strip(
    services: Services, client: TestClient, record: Callable[..., None], make_records: Callable[..., Any]
) -> None:
    """Null, not an error: the page says it waits."""
    record(services.store, "run00000000000d4", make_records()[:3])
    assert client.get("/api/v1/runs/run00000000000d4/strip").json() is None
    assert client.get("/api/v1/runs/run00000000000d4/rug").json() is None
    assert client.get("/api/v1/runs/run00000000000d4").json()["state"] == "waiting"
