"""Addresses taken apart, and what answers mean."""

from __future__ import annotations

import pytest
from halfscope_server.alerts.dialing import Reach
from halfscope_server.alerts.posting import judged, place_of, post

from tests.helpers.receivers import http_receiver

HERE = Reach.allowed(private=True, networks=())


@pytest.mark.parametrize(
    ("url", "host", "port", "tls", "target", "authority"),
    [
        ("https://example.org", "example.org", 443, True, "/", "example.org"),
        ("http://example.org:8080/a b", "", 0, False, "", ""),
        ("http://example.org:8080/a?b=%20c#d", "example.org", 8080, False, "/a?b=%20c", "example.org:8080"),
        ("https://[2001:db8::1]/x", "2001:db8::1", 443, True, "/x", "[2001:db8::1]"),
        ("https://bücher.example/ü", "xn--bcher-kva.example", 443, True, "/%C3%BC", "xn--bcher-kva.example"),
        ("HTTP://EXAMPLE.org/", "example.org", 80, False, "/", "example.org"),
    ],
)
def test_an_address_is_taken_apart(url: str, host: str, port: int, tls: bool, target: str, authority: str) -> None:
    """Host, port and target as they go over the wire; what has a space in it is none."""
    if not host:
        with pytest.raises(ValueError, match="spaces"):
            place_of(url)
        return
    place = place_of(url)
    assert (place.host, place.port, place.tls, place.target, place.authority) == (host, port, tls, target, authority)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.org/hook",
        "ftp://example.org/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:25/_HELO",
        "https://",
        "https:///path",
        "https://user:hunter2@example.org/",
        "https://hunter2@example.org/",
        "https://example.org:99999/",
        "https://example.org:0/",
        "https://example.org/\r\nX-Hunter2: 1",
        "https://exam\tple.org/hunter2",
        "https://" + "a" * 64 + ".org/hunter2",
        "https://[::1/hunter2",
    ],
)
def test_what_is_no_web_address_is_refused_without_repeating_it(url: str) -> None:
    """Other schemes, credentials, control characters and nonsense are refused, and not repeated in the text."""
    with pytest.raises(ValueError) as caught:
        place_of(url)
    assert "hunter2" not in str(caught.value).lower()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    """A redirect is refused for good, wherever it leads, and its target is not asked."""
    with http_receiver() as inside, http_receiver() as receiver:
        receiver.answers = [(status, {"Location": inside.url})]
        outcome = post(place_of(receiver.url), b"{}", {}, HERE)
        assert inside.requests == []
    assert (outcome.ok, outcome.may_retry) == (False, False)
    assert "redirects are not followed" in outcome.text


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY"])
def test_proxies_of_the_environment_are_not_used(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would look names up again."""
    with http_receiver() as proxy, http_receiver() as receiver:
        monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
        assert post(place_of(receiver.url), b"{}", {}, HERE).ok
        assert (len(proxy.requests), len(receiver.requests)) == (0, 1)


@pytest.mark.parametrize(
    ("status", "ok", "may_retry", "is_form"),
    [
        *[(status, True, True, False) for status in (200, 202, 204)],
        *[(status, False, True, False) for status in (408, 425, 429, 500, 502, 503, 504)],
        *[(status, False, False, False) for status in (300, 401, 403, 404, 405, 410)],
        *[(status, False, False, True) for status in (400, 413, 422)],
    ],
)
def test_what_an_answer_means(status: int, ok: bool, may_retry: bool, is_form: bool) -> None:
    """5xx and a few 4xx pass; other 4xx cannot succeed as they are; some are the message's own fault."""
    outcome = judged(status, "h.test")
    assert (outcome.ok, outcome.may_retry if not ok else True, outcome.is_size_or_form) == (ok, may_retry, is_form)


@pytest.mark.parametrize(
    ("given", "expected"), [("7", 7.0), ("999999", 3600.0), ("Wed, 21 Oct 2026", None), ("", None)]
)
def test_what_the_receiver_asks_for_is_heard(given: str, expected: float | None) -> None:
    """Retry-After in seconds is taken, up to an hour."""
    assert judged(429, "h.test", given).retry_after_s == expected
