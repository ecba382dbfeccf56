"""The routes behind `halfscope token`."""

from __future__ import annotations

from typing import Any

import pytest
from halfscope_server.api.services import Services
from starlette.testclient import TestClient

OWN = {"Authorization": "Bearer the-token-of-the-servers-own-machine"}


@pytest.fixture
def own(services: Services) -> dict[str, str]:
    """What this machine's commands send."""
    services.authenticator.admit_token("the-token-of-the-servers-own-machine", name="local")
    return OWN


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/tokens", {"name": "x"}),
        ("GET", "/api/v1/tokens", None),
        ("DELETE", "/api/v1/tokens/tests", None),
    ],
)
def test_neither_a_given_token_nor_a_browser_opens_them(
    services: Services, client: TestClient, stranger: TestClient, method: str, path: str, body: Any
) -> None:
    """Only the server's own token does, so what was given away cannot multiply."""
    assert client.request(method, path, json=body).status_code == 403
    stranger.post("/api/v1/session", json={"code": services.authenticator.issue_code()[0]})
    signed_in = stranger.request(method, path, json=body, headers={"Origin": "http://127.0.0.1:65504"})
    assert signed_in.status_code == 403
    assert [row.name for row in services.store.list_tokens()] == ["tests"]


def test_revoked_name_closes_every_door_it_opened(client: TestClient, own: dict[str, str]) -> None:
    """Several tokens may have come under one name; all of them go, and the others stay."""
    made = client.post("/api/v1/tokens", json={"name": "a/b c"}, headers=own).json()
    theirs = {"Authorization": f"Bearer {made['token']}"}
    assert client.get("/api/v1/runs", headers=theirs).status_code == 200
    assert client.delete("/api/v1/tokens/a%2Fb%20c", headers=own).json() == {"revoked": 1}
    assert client.get("/api/v1/runs", headers=theirs).status_code == 401
    assert client.get("/api/v1/runs").status_code == 200


def test_secret_of_a_token_is_in_no_list(client: TestClient, own: dict[str, str]) -> None:
    """Nor its hash."""
    made = client.post("/api/v1/tokens", json={"name": "laptop"}, headers=own).json()
    listed = client.get("/api/v1/tokens", headers=own)
    assert [set(row) for row in listed.json()["tokens"]] == [{"name", "created_us"}] * 3
    assert made["token"] not in listed.text
