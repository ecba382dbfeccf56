"""Signing in with a link, and out again."""

from __future__ import annotations

import re

from halfscope_server.api.services import Services
from starlette.testclient import TestClient


def test_link_signs_in_once(client: TestClient, stranger: TestClient) -> None:
    """The code stands in the fragment, which no browser sends; the cookie it brings is out of reach of scripts and
    other sites."""
    link = client.post("/api/v1/session/links").json()
    assert re.fullmatch(r"http://127\.0\.0\.1:65504/#code=[\w-]{43}", link["url"])
    response = stranger.post("/api/v1/session", json={"code": link["code"]})
    assert response.status_code == 200
    cookie = response.headers["set-cookie"]
    assert cookie.startswith("halfscope_session_65504=")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {part.strip() for part in cookie.split(";")}
    assert link["code"] not in cookie
    assert stranger.get("/api/v1/session").json() == response.json()

    again = TestClient(stranger.app, base_url="http://127.0.0.1:65504").post(
        "/api/v1/session", json={"code": link["code"]}
    )
    assert again.status_code == 401
    assert "halfscope open" in again.json()["detail"]


def test_signing_out_ends_the_session_on_the_server(services: Services, stranger: TestClient) -> None:
    """A copy of the cookie is worth nothing afterwards."""
    stranger.post("/api/v1/session", json={"code": services.authenticator.issue_code()[0]})
    cookies = dict(stranger.cookies)
    assert stranger.delete("/api/v1/session", headers={"Origin": "http://127.0.0.1:65504"}).status_code == 204
    stranger.cookies.clear()
    for name, value in cookies.items():
        stranger.cookies.set(name, value)
    assert stranger.get("/api/v1/session").status_code == 401


def test_cookies_of_two_servers_on_one_machine_do_not_meet(services: Services, stranger: TestClient) -> None:
    """Browsers keep one jar for all ports of a name, so the cookie's name holds the port that the browser sees."""
    code = services.authenticator.issue_code()[0]
    response = stranger.post("/api/v1/session", json={"code": code}, headers={"Host": "localhost:8000"})
    assert response.headers["set-cookie"].startswith("halfscope_session_8000=")


def test_wrong_code_is_not_repeated_in_the_answer(stranger: TestClient) -> None:
    """An error body may end in a log."""
    for body in ({"code": "guess-guess"}, {"code": ["guess-guess"]}, {"kode": "guess-guess"}):
        response = stranger.post("/api/v1/session", json=body)
        assert response.status_code in (401, 422)
        assert "guess-guess" not in response.text


def test_token_has_no_end(client: TestClient) -> None:
    """A script's session is its token."""
    assert client.get("/api/v1/session").json() == {"expires_us": 0}
