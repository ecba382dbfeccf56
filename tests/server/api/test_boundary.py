"""What holds for every response: headers, request ids, size limits, and errors in one shape."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from halfscope_server.api.boundary import Boundary
from halfscope_server.api.services import Services
from halfscope_server.settings import Settings
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

Opened = Callable[[Settings], AbstractContextManager[tuple[Services, TestClient]]]


@pytest.mark.parametrize("path", ["/", "/api/v1/runs", "/api/v1/runs/none", "/healthz", "/metrics", "/api/v1/theme"])
def test_every_response_is_closed_to_other_origins_and_foreign_code(
    client: TestClient, stranger: TestClient, path: str
) -> None:
    """Successes, errors and refusals alike."""
    for asking in (client, stranger):
        headers = asking.get(path).headers
        policy = {part.split(" ")[0]: part for part in headers["content-security-policy"].split("; ")}
        assert policy["script-src"] == "script-src 'self'"
        assert policy["style-src"] == "style-src 'self'"
        assert policy["style-src-attr"] == "style-src-attr 'unsafe-inline'"
        assert policy["frame-ancestors"] == "frame-ancestors 'none'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert len(headers["x-request-id"]) == 16
        assert "server" not in headers


def test_answers_of_the_api_are_kept_by_nobody(client: TestClient) -> None:
    """Nor by a browser's cache after signing out."""
    assert client.get("/api/v1/runs").headers["cache-control"] == "no-store"
    assert client.get("/").headers["cache-control"] == "no-cache"


def test_errors_have_one_shape_and_the_id_of_their_request(client: TestClient, stranger: TestClient) -> None:
    """Whatever made them: the guard, the router, validation or a route."""
    answers = {
        401: stranger.get("/api/v1/runs"),
        403: client.get("/api/v1/runs", headers={"Host": "evil.example"}),
        404: client.get("/api/v1/runs/none"),
        422: client.get("/api/v1/runs", params={"strip_bins": "many"}),
    }
    for status, answer in answers.items():
        assert answer.status_code == status
        assert answer.json().keys() == {"code", "detail", "request_id"}
        assert answer.json()["request_id"] == answer.headers["x-request-id"]
        assert answer.json()["detail"]
    assert len({answer.headers["x-request-id"] for answer in answers.values()}) == len(answers)


def test_body_above_the_limit_is_refused_before_it_is_read(opened: Opened, settings: Settings) -> None:
    """By its declared length."""
    with opened(replace(settings, max_body_bytes=1000)) as (_, client):
        response = client.post("/api/v1/session", content=b"x" * 1001, headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert "at most 1000" in response.json()["detail"]


def test_body_that_does_not_say_how_long_it_is_is_cut_at_the_limit(opened: Opened, settings: Settings) -> None:
    """Chunked bodies declare nothing."""

    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b"x" * 100

    with opened(replace(settings, max_body_bytes=1000)) as (_, client):
        response = client.post("/api/v1/session", content=chunks(), headers={"Content-Type": "application/json"})
    assert response.status_code == 413
    assert response.json()["code"] == "too_large"


def test_unexpected_error_is_logged_counted_and_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    """The client gets the id under which the log has the rest."""
    num_errors = 0

    async def broken(scope: Scope, receive: Receive, send: Send) -> None:
        raise RuntimeError("password hunter2")

    def count() -> None:
        nonlocal num_errors
        num_errors += 1

    client = TestClient(Boundary(broken, max_body_bytes=10, max_ingest_body_bytes=10, count_error=count))
    with caplog.at_level(logging.ERROR):
        response = client.get("/api/v1/x")
    assert (response.status_code, num_errors) == (500, 1)
    assert "hunter2" not in response.text
    assert "hunter2" in caplog.text
    assert response.json()["request_id"] in caplog.text


@pytest.mark.parametrize("sent", ["/halfscope/api/x", "/api/x"])
def test_root_path_is_there_whether_the_proxy_strips_it_or_not(sent: str) -> None:
    """Both kinds of proxy are common."""
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    boundary = Boundary(
        app, root_path="/halfscope", max_body_bytes=10, max_ingest_body_bytes=10, count_error=lambda: None
    )
    sink: list[Message] = []

    async def send(message: Message) -> None:
        sink.append(message)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {"type": "http", "method": "GET", "path": sent, "root_path": "", "headers": []}
    asyncio.run(boundary(scope, receive, send))
    assert seen == ["/halfscope/api/x"]
