"""`/healthz` and `/metrics`."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from halfscope_server.api import metrics
from halfscope_server.api.services import Services
from halfscope_server.errors import Unavailable
from halfscope_server.settings import Settings
from halfscope_server.store.store import Store
from starlette.testclient import TestClient


def test_healthy_server_says_so_to_anybody(stranger: TestClient) -> None:
    """A container's health check has no token."""
    response = stranger.get("/healthz")
    assert response.status_code == 200
    assert response.json() == {"ok": True, "database": "ok", "writer": "ok"}
    assert stranger.head("/healthz").status_code == 200


def test_stopped_writer_is_unhealthy(services: Services, client: TestClient) -> None:
    """A server that takes nothing in any more must be restarted, whatever else still works."""
    services.writer.stop()
    response = client.get("/healthz")
    assert response.status_code == 503
    assert response.json()["ok"] is False
    assert "restart" in response.json()["writer"]


def test_database_that_takes_no_writes_is_not_described_to_strangers(
    stranger: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address and what ails it are for the log."""

    def fail(self: Store, session_hash: str) -> bool:
        raise Unavailable("postgresql://secret-host: no space left on device")

    monkeypatch.setattr(Store, "delete_session", fail)
    response = stranger.get("/healthz")
    assert response.status_code == 503
    assert response.json()["database"] == "unavailable"
    assert "secret-host" not in response.text


def _samples(client: TestClient) -> dict[str, float]:
    text = client.get("/metrics").text
    return {m[1]: float(m[2]) for m in re.finditer(r"^([a-z_]+(?:\{.*\})?) (\S+)$", text, re.MULTILINE)}


def test_metrics_say_what_the_pages_say(client: TestClient, run_id: str) -> None:
    """States, newest step, scale and skips by class of a run."""
    found = _samples(client)
    labels = f'name="fp16-cnn",project="digits",run="{run_id}"'
    assert found['halfscope_runs{state="finished"}'] == 1
    assert found['halfscope_runs{state="live"}'] == 0
    assert found[f"halfscope_run_last_step{{{labels}}}"] == 199
    assert found[f"halfscope_run_scale{{{labels}}}"] == 32768
    assert found[f'halfscope_run_skips{{class="single",{labels}}}'] == 1
    assert found["halfscope_live_clients"] == 0
    assert found["halfscope_unexpected_errors_total"] == 0
    assert "halfscope_ingest_points_total" in found
    assert found["halfscope_alerts_is_evaluating"] == 1
    assert found["halfscope_alerts_errors_total"] == 0
    assert found["halfscope_alerts_firing"] == 0
    assert found["halfscope_notifications_sent_total"] == 0
    assert found["halfscope_ranks_errors_total"] == found["halfscope_ranks_found_total"] == 0
    assert {"halfscope_ranks_rounds_total", "halfscope_ranks_judge_seconds_total"} <= found.keys()


def test_number_of_time_series_is_bounded(
    services: Services,
    client: TestClient,
    record: Callable[..., None],
    make_records: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However many runs there are, only the last heard of have gauges of their own."""
    monkeypatch.setattr(metrics, "MAX_RUNS", 3)
    for number in range(5):
        record(services.store, f"run{number:013d}", make_records()[:3])
    found = _samples(client)
    assert found['halfscope_runs{state="waiting"}'] == 5
    skips = [name for name in found if name.startswith("halfscope_run_skips") and 'class="probe"' in name]
    assert len(skips) == 3


def test_server_on_postgresql_answers_the_same(
    postgres_server: Any, opened: Callable[..., Any], tmp_path: Path, send: Callable[..., None], make_records: Any
) -> None:
    """From an agent's POST to the run's page and back out, with signing in, on the other database."""
    with postgres_server.copy() as url, opened(Settings(home=tmp_path, database_url=url)) as (services, client):
        send(client, "run00000000000g7", make_records())
        assert client.get("/healthz").json()["ok"] is True
        assert client.get("/api/v1/server").json()["database"] == "postgresql"
        assert client.get("/api/v1/runs").json()["runs"][0]["last_step"] == 199
        assert client.get("/api/v1/runs/run00000000000g7/panels/loss").status_code == 200
        assert client.get("/api/v1/runs/run00000000000g7/export").text.count("\n") == 803
        code, _ = services.authenticator.issue_code()
        assert client.post("/api/v1/session", json={"code": code}).status_code == 200
        assert client.post("/api/v1/session", json={"code": code}).status_code == 401
        assert client.delete("/api/v1/runs/run00000000000g7").status_code == 204
        assert client.get("/api/v1/runs/run00000000000g7").status_code == 410
