"""Which hosts and origins count as ours."""

from __future__ import annotations

import pytest
from halfscope_server.api.hosts import HostPolicy, split_host

LOCAL = HostPolicy(bound="127.0.0.1")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("localhost", ("localhost", None)),
        ("LOCALHOST:65504", ("localhost", 65504)),
        ("[::1]:65504", ("::1", 65504)),
        ("[::1]", ("::1", None)),
        ("box.example.:80", ("box.example", 80)),
    ],
)
def test_host_is_split_into_name_and_port(header: str, expected: tuple[str, int | None]) -> None:
    """Brackets, case and a final dot are no part of the name."""
    assert split_host(header) == expected


@pytest.mark.parametrize(
    "header",
    ["", ":80", "user@localhost", "localhost/evil", "localhost,evil", "localhost evil", "localhost:port", "[::1"],
)
def test_what_is_no_host_is_refused(header: str) -> None:
    """Anything besides a name and a port is an attempt to be read in two ways."""
    with pytest.raises(ValueError):
        split_host(header)


@pytest.mark.parametrize("header", ["localhost:65504", "127.0.0.1:65504", "[::1]:65504", "localhost:8000", "127.0.0.1"])
def test_this_machine_is_ours_on_any_port(header: str) -> None:
    """`ssh -L` gives the browser another port."""
    assert LOCAL.allows_host(header)


@pytest.mark.parametrize(
    "header", ["evil.example:65504", "localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.5", ""]
)
def test_a_rebound_name_is_not_ours(header: str) -> None:
    """DNS rebinding gives an attacker's name our address; the name gives it away."""
    assert not LOCAL.allows_host(header)


def test_names_are_allowed_by_hand() -> None:
    """--allow-host takes a name with every port, and nothing below or above it."""
    policy = HostPolicy(bound="0.0.0.0", allow_hosts=("box.example",))
    assert policy.allows_host("box.example:443")
    assert not policy.allows_host("sub.box.example")
    assert not policy.allows_host("example")


def test_addresses_count_once_the_server_listens_beyond_loopback() -> None:
    """An IP literal cannot be rebound; names still need to be allowed."""
    policy = HostPolicy(bound="0.0.0.0")
    assert policy.allows_host("10.0.0.5:65504")
    assert not policy.allows_host("box.example:65504")


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://localhost:65504", "localhost:65504"),
        ("http://[::1]:65504", "[::1]:65504"),
        ("http://localhost:8000", "localhost:8000"),
        ("http://localhost", "localhost"),
        ("https://box.example", "box.example"),
        ("https://box.example", "127.0.0.1:65504"),
        ("https://box.example:8443", "127.0.0.1:65504"),
    ],
)
def test_our_own_pages_may_change_things(origin: str, host: str) -> None:
    """The page's address is the one it asks, or a name allowed by hand where a proxy rewrites Host."""
    assert HostPolicy(bound="127.0.0.1", allow_hosts=("box.example", "box.example:8443")).allows_origin(origin, host)


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        ("http://evil.example", "localhost:65504"),
        ("http://localhost:3000", "localhost:65504"),
        ("null", "localhost:65504"),
        ("file://", "localhost:65504"),
        ("http://localhost:65504.evil.example", "localhost:65504"),
        ("http://localhost:65504@evil.example", "localhost:65504"),
        ("http://evil.example:65504", "evil.example:65504"),
        ("https://box.example:9999", "127.0.0.1:65504"),
        ("javascript:alert(1)", "localhost:65504"),
    ],
)
def test_other_pages_may_not(origin: str, host: str) -> None:
    """Another port of this machine is another program's page, and a rebound name is foreign although it equals Host."""
    assert not HostPolicy(bound="127.0.0.1", allow_hosts=("box.example",)).allows_origin(origin, host)
