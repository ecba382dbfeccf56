"""The live websocket, with the real hub behind it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from halfscope_server.api import live, live_models
from halfscope_server.api.services import Services
from halfscope_server.settings import Settings
from pydantic import TypeAdapter
from starlette.testclient import TestClient, WebSocketTestSession
from starlette.websockets import WebSocketDisconnect

LIVE = "ws://127.0.0.1:65504/api/v1/live"

_server_message: TypeAdapter[Any] = TypeAdapter(live_models.ServerMessage)


def _next(socket: WebSocketTestSession, kind: str) -> dict[str, Any]:
    """The next message of a kind; every message on the way must be one of the typed API."""
    while True:
        message = json.loads(socket.receive_text())
        _server_message.validate_python(message)
        if message["type"] == kind:
            return dict(message)


def test_runs_table_comes_at_once_and_again_when_it_changes(client: TestClient, run_id: str) -> None:
    """A rename by somebody else is seen without asking."""
    with client.websocket_connect(LIVE) as socket:
        socket.send_json({"type": "watch_runs"})
        assert [run["name"] for run in _next(socket, "runs")["list"]["runs"]] == ["fp16-cnn"]
        client.patch(f"/api/v1/runs/{run_id}", json={"name": "renamed"})
        assert [run["name"] for run in _next(socket, "runs")["list"]["runs"]] == ["renamed"]


def test_watched_run_brings_its_summary_strip_and_panels(client: TestClient, run_id: str) -> None:
    """The strip at the width asked for, the fills of the panels asked for, and their arrays fit the skeleton."""
    figure = client.get(f"/api/v1/runs/{run_id}/panels/loss").json()
    with client.websocket_connect(LIVE) as socket:
        socket.send_json({"type": "watch_run", "run": run_id, "panels": ["loss", "none"], "strip_bins": 40})
        run = _next(socket, "run")
        assert run["summary"]["id"] == run_id
        assert len(base64.b64decode(run["strip"]["cells"])) == 40
        fills = _next(socket, "panels")["fills"]
        assert [fill["panel"] for fill in fills] == ["loss"]
        assert fills[0]["skeleton_id"] == figure["fill"]["skeleton_id"]


def test_new_data_are_drawn_without_asking(
    client: TestClient, send: Callable[..., None], make_records: Callable[..., Any]
) -> None:
    """From an agent's POST over the writer, the store and the hub to the viewer."""
    run = "run00000000000f6"
    records = make_records(ended=False)
    send(client, run, records[:3])
    with client.websocket_connect(LIVE) as socket:
        socket.send_json({"type": "watch_run", "run": run, "panels": ["loss"]})
        assert _next(socket, "run")["summary"]["state"] == "waiting"
        send(client, run, records[3:])
        while (message := _next(socket, "run"))["summary"]["state"] == "waiting":
            pass
        assert (message["summary"]["state"], message["summary"]["last_step"]) == ("live", 199)
        assert _next(socket, "panels")["fills"][0]["last_step"] == 199


def test_deleted_run_is_told_with_its_name(client: TestClient, run_id: str) -> None:
    """The page that shows it can say what happened."""
    with client.websocket_connect(LIVE) as socket:
        socket.send_json({"type": "watch_run", "run": run_id, "panels": []})
        _next(socket, "run")
        client.delete(f"/api/v1/runs/{run_id}")
        message = _next(socket, "deleted")
        assert (message["run"], message["name"]) == (run_id, "fp16-cnn")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        '{"type": "watch"}',
        '{"type": "watch_run", "run": "x"}',
        '{"type": "watch_run", "run": "x", "panels": [], "strip_bins": 100000000}',
        '{"type": "watch_run", "run": "x", "panels": [], "window": {"first": NaN}}',
        '{"type": "watch_runs", "more": 1}',
        '{"type": "watch_run", "run": "x", "panels": ["' + "p" * 70_000 + '"]}',
    ],
)
def test_message_that_cannot_be_understood_is_answered_and_the_rest_goes_on(client: TestClient, text: str) -> None:
    """The connection stays good for the next one."""
    with client.websocket_connect(LIVE) as socket:
        socket.send_text(text)
        error = _next(socket, "error")
        assert error["code"] == "invalid"
        assert len(error["request_id"]) == 16
        socket.send_json({"type": "watch_runs"})
        assert _next(socket, "runs")["list"]["total"] == 0


def test_unknown_run_is_an_error_message(client: TestClient) -> None:
    """Not a closed connection."""
    with client.websocket_connect(LIVE) as socket:
        socket.send_json({"type": "watch_run", "run": "none", "panels": []})
        assert _next(socket, "error")["code"] == "not_found"


def test_viewers_are_counted_and_limited(opened: Callable[..., Any], settings: Settings, token: str) -> None:
    """One more than allowed is told to come back later; when one leaves there is room again."""
    with opened(replace(settings, max_live_clients=1)) as (services, client):
        with client.websocket_connect(LIVE) as first:
            first.send_json({"type": "watch_runs"})
            _next(first, "runs")
            assert services.hub.num_clients == 1
            with client.websocket_connect(LIVE) as second, pytest.raises(WebSocketDisconnect) as closed:
                second.receive_text()
            assert closed.value.code == 1013
        with client.websocket_connect(LIVE) as third:
            third.send_json({"type": "watch_runs"})
            assert _next(third, "runs")["list"]["total"] == 0


def test_signing_out_elsewhere_closes_what_the_session_opened(
    services: Services, stranger: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate asks only at the opening; a page left open in another window must not go on seeing news."""
    monkeypatch.setattr(live, "SESSION_CHECK_S", 0.01)
    origin = {"Origin": "http://127.0.0.1:65504"}
    stranger.post("/api/v1/session", json={"code": services.authenticator.issue_code()[0]})
    with stranger.websocket_connect(LIVE, headers=origin) as socket:
        socket.send_json({"type": "watch_runs"})
        _next(socket, "runs")
        assert stranger.delete("/api/v1/session", headers=origin).status_code == 204
        with pytest.raises(WebSocketDisconnect) as closed:
            _next(socket, "none comes any more")
        assert closed.value.code == 4401
