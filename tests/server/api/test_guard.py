"""The gate in front of every route: nothing answers a stranger, a foreign page or a foreign name."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts
from halfscope_server.api.guard import PUBLIC
from halfscope_server.api.services import Services
from halfscope_server.settings import Settings
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient, WebSocketDenialResponse

SOCKET = "ws://127.0.0.1:65504"
"""The test client would otherwise ask for a host of its own."""

Opened = Callable[[Settings], AbstractContextManager[tuple[Services, TestClient]]]


def _routes(app: FastAPI) -> list[tuple[str, str]]:
    """(method, path) of every route of an app, `WEBSOCKET` for sockets, with parameters filled in."""
    found = []
    for context in iter_route_contexts(app.routes):
        route = context.original_route
        path = re.sub(r"\{(\w+)(:path)?\}", "x", context.path or "")
        methods = ["WEBSOCKET"] if isinstance(route, WebSocketRoute) else sorted(context.methods or ())
        found += [(method, path) for method in methods]
    return found


def test_every_route_but_the_public_ones_turns_a_stranger_away(client: TestClient, stranger: TestClient) -> None:
    """Walks all routes, REST and websockets, so that a new one is closed until somebody opens it on purpose."""
    routes = _routes(client.app)  # type: ignore[arg-type]
    assert len(routes) > 25
    assert ("WEBSOCKET", "/api/v1/agent") in routes
    assert ("WEBSOCKET", "/api/v1/live") in routes
    assert set(routes) >= PUBLIC
    for method, path in routes:
        if (method, path) in PUBLIC:
            continue
        if method == "WEBSOCKET":
            with pytest.raises(WebSocketDenialResponse) as refused, stranger.websocket_connect(SOCKET + path):
                pass
            assert (path, refused.value.status_code) == (path, 401)
        else:
            response = stranger.request(method, path)
            assert (method, path, response.status_code) == (method, path, 401)


def test_the_same_routes_let_the_token_through(client: TestClient) -> None:
    """The walk above would also pass on a server that refuses everybody."""
    for method, path in _routes(client.app):  # type: ignore[arg-type]
        if method in ("GET", "HEAD"):
            assert client.request(method, path).status_code != 401


def test_unknown_paths_below_api_answer_strangers_like_known_ones(stranger: TestClient) -> None:
    """Nobody learns from outside which routes there are."""
    for path in ("/api", "/api/", "/api/v1/nothing", "/api/v1/runs/", "/api/v2/runs", "/docs", "/openapi.json"):
        response = stranger.get(path)
        if path.startswith("/api/"):
            assert (path, response.status_code) == (path, 401)
        else:
            # Not a route at all: at most the web app's start page, which holds no data.
            assert "paths" not in response.text


@pytest.mark.parametrize(
    "path",
    ["//api/v1/runs", "/api//v1/runs", "/API/v1/runs", "/%61pi/v1/runs", "/api/v1/../v1/runs", "/x/../api/v1/runs"],
)
def test_no_spelling_of_a_path_gets_around_the_gate(
    client: TestClient, stranger: TestClient, run_id: str, path: str
) -> None:
    """Either it is the route, and closed, or it is not the route, and shows no run."""
    response = stranger.get(path)
    assert response.status_code in (401, 404) or run_id not in response.text
    assert run_id in client.get("/api/v1/runs").text


@pytest.mark.parametrize("authorization", ["Bearer wrong", "Bearer", "Bearer ", "Basic eDp5", "wrong"])
def test_wrong_credentials_are_none(stranger: TestClient, authorization: str) -> None:
    """And the answer says where to get right ones."""
    response = stranger.get("/api/v1/runs", headers={"Authorization": authorization})
    assert response.status_code == 401
    assert "halfscope open" in response.json()["detail"]
    assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:65504", "127.0.0.1.evil.example:65504", "localhost@evil.example"]
)
def test_rebound_name_reads_nothing(client: TestClient, host: str) -> None:
    """DNS rebinding: a page on a name that now points to 127.0.0.1 has the cookie or token of nobody, but is refused
    even with it."""
    for path in ("/api/v1/runs", "/healthz", "/"):
        response = client.get(path, headers={"Host": host})
        assert (path, response.status_code) == (path, 403)
    with (
        pytest.raises(WebSocketDenialResponse) as refused,
        client.websocket_connect(SOCKET + "/api/v1/live", headers={"Host": host, "Origin": f"http://{host}"}),
    ):
        pass
    assert refused.value.status_code == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "[::1]:65504", "127.0.0.1:1234"])
def test_forwarded_port_of_this_machine_is_served(client: TestClient, host: str) -> None:
    """`ssh -L 8000:localhost:65504` changes the port and nothing else."""
    assert client.get("/api/v1/runs", headers={"Host": host}).status_code == 200


def test_name_allowed_by_hand_is_served(opened: Opened, settings: Settings) -> None:
    """--allow-host."""
    with opened(replace(settings, allow_hosts=("box.example",))) as (_, client):
        assert client.get("/api/v1/runs", headers={"Host": "box.example"}).status_code == 200
        assert client.get("/api/v1/runs", headers={"Host": "other.example"}).status_code == 403


def _sign_in(services: Services, browser: TestClient) -> None:
    response = browser.post("/api/v1/session", json={"code": services.authenticator.issue_code()[0]})
    assert response.status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:3000", "null"])
def test_foreign_page_changes_nothing_with_a_good_cookie(
    services: Services, stranger: TestClient, run_id: str, origin: str
) -> None:
    """Cross-site request forgery, and another program's page on another port of this machine, which gets the cookie
    too."""
    _sign_in(services, stranger)
    for method in ("DELETE", "PATCH"):
        response = stranger.request(method, f"/api/v1/runs/{run_id}", headers={"Origin": origin})
        assert response.status_code == 403
    assert services.store.get_run(run_id) is not None


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:3000", "null"])
def test_foreign_page_opens_no_websocket_with_a_good_cookie(
    services: Services, stranger: TestClient, origin: str
) -> None:
    """Websockets know no same-origin policy: whoever is asked must look at Origin himself."""
    _sign_in(services, stranger)
    for path in ("/api/v1/live", "/api/v1/agent"):
        with (
            pytest.raises(WebSocketDenialResponse) as refused,
            stranger.websocket_connect(SOCKET + path, headers={"Origin": origin}),
        ):
            pass
        assert refused.value.status_code == 403


def test_cookie_without_origin_changes_nothing(services: Services, stranger: TestClient, run_id: str) -> None:
    """Browsers always say where a change comes from; who does not is no page of ours, and can use a token."""
    _sign_in(services, stranger)
    assert stranger.get("/api/v1/runs").status_code == 200
    assert stranger.delete(f"/api/v1/runs/{run_id}").status_code == 401
    with pytest.raises(WebSocketDenialResponse), stranger.websocket_connect(SOCKET + "/api/v1/live"):
        pass
    origin = {"Origin": "http://127.0.0.1:65504"}
    assert stranger.delete(f"/api/v1/runs/{run_id}", headers=origin).status_code == 204


def test_a_page_cannot_lend_its_cookie_to_a_wrong_token(services: Services, stranger: TestClient) -> None:
    """A revoked token stays revoked in a browser that is signed in."""
    _sign_in(services, stranger)
    assert stranger.get("/api/v1/runs", headers={"Authorization": "Bearer wrong"}).status_code == 401
