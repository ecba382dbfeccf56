"""Which addresses notifications may reach, by lists written by hand from the registries and the clouds' pages."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any

import pytest
from halfscope_server.alerts.addresses import Policy, Refused, resolve
from halfscope_server.alerts.dialing import Reach

REFUSED_TEXT = """
127.0.0.1 127.0.0.2 127.255.255.254 127.1 127.0.1 2130706433 017700000001 0x7f000001 0x7f.1 0177.0.0.1 0x7f.0x0.0x0.0x1
0 0.0.0.0 0.0.0.1 10.0.0.1 10.255.255.255 167772161 0x0a000001 012.0.0.1
172.16.0.1 172.31.255.255 192.168.0.1 192.168.255.255 3232235521 100.64.0.1 100.127.255.255
169.254.0.1 169.254.169.254 169.254.170.2 2852039166 0xa9fea9fe 0251.0376.0251.0376 169.254.43518
168.63.129.16 100.100.100.200 192.0.0.192 192.0.0.1 192.0.2.1 198.51.100.7 203.0.113.9 198.18.0.1 198.19.255.255
192.88.99.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255
:: ::1 0:0:0:0:0:0:0:1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:7f00:1 0:0:0:0:0:ffff:7f00:0001 ::ffff:10.0.0.1
::ffff:169.254.169.254 ::ffff:a9fe:a9fe ::ffff:0:127.0.0.1 ::8.8.8.8
64:ff9b::127.0.0.1 64:ff9b::a9fe:a9fe 64:ff9b::10.1.2.3 64:ff9b:1::7f00:1 64:ff9b:1:7f00:0:100::
2002:7f00:1:: 2002:a00:1::1 2002:a9fe:a9fe:: 2001:0:4136:e378:8000:63bf:3fff:fdd2 2001:db8::1 2001:10::1
2607:f8b0::5efe:127.0.0.1 2607:f8b0::200:5efe:10.0.0.1 fe80::5efe:8.8.8.8
fe80::1 fe80::1%lo fc00::1 fd12:3456:789a::1 fd00:ec2::254 fd20:ce::254 fec0::1 ff02::1 ff0e::1 100::1 3fff::1 5f00::1
"""
REFUSED = REFUSED_TEXT.split()

REACHABLE_TEXT = """
8.8.8.8 1.1.1.1 134744072 0x08080808 9.255.255.255 11.0.0.1 172.15.255.255 172.32.0.1 192.167.255.255 192.169.0.1
100.63.255.255 100.128.0.1 169.253.255.255 169.255.0.1 126.255.255.255 128.0.0.1 223.255.255.254 198.17.255.255
2607:f8b0:4005:80a::200e 2a00:1450:4001:81c::200e ::ffff:8.8.8.8 64:ff9b::8.8.8.8 2001:4860:4860::8888
2607:f8b0::5efe:8.8.8.8
"""
REACHABLE = REACHABLE_TEXT.split()


def numeric(host: str, port: int, **options: Any) -> list[tuple[Any, ...]]:
    """The system's own reading of an address in any spelling; no name is looked up."""
    return socket.getaddrinfo(host, port, flags=socket.AI_NUMERICHOST, **options)


def test_there_are_enough_addresses() -> None:
    """The list is long enough to mean something, and names no address twice."""
    assert len(REFUSED) == len(set(REFUSED)) >= 60


@pytest.mark.parametrize("host", REFUSED)
def test_private_and_reserved_addresses_are_refused_in_any_spelling(host: str) -> None:
    """By the default policy no address of a private or reserved network is given to connect to."""
    with pytest.raises(Refused, match=r"private or reserved network.*HALFSCOPE_ALERT_ALLOW_PRIVATE"):
        resolve(host, 443, Policy(), numeric)


@pytest.mark.parametrize("host", REACHABLE)
def test_public_addresses_are_reachable(host: str) -> None:
    """Addresses just outside those networks, and public ones, are given as the system reads them."""
    assert resolve(host, 443, Policy(), numeric) == numeric(host, 443, type=socket.SOCK_STREAM, proto=6)


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [
        *[
            (host, True)
            for host in ("127.0.0.1", "10.1.2.3", "172.20.0.1", "192.168.1.1", "100.64.0.1", "::1", "fd12::1")
        ],
        *[(host, True) for host in ("::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "8.8.8.8")],
        *[
            (host, False)
            for host in ("169.254.169.254", "100.100.100.200", "168.63.129.16", "fd00:ec2::254", "0.0.0.0")
        ],
        *[
            (host, False)
            for host in ("fe80::1", "224.0.0.1", "192.0.2.1", "::ffff:169.254.169.254", "2002:a9fe:a9fe::")
        ],
    ],
)
def test_private_networks_can_be_allowed_without_the_clouds_metadata(host: str, is_allowed: bool) -> None:
    """An operator who allows private networks does not allow what hands out credentials, nor multicast."""
    assert Policy(allow_private=True).allows(ipaddress.ip_address(host)) is is_allowed


def test_a_network_that_is_named_is_allowed_and_nothing_around_it() -> None:
    """An allow list lets its networks through, inside wrappers too, even one of metadata."""
    reach = Reach.allowed(private=False, networks=["10.1.0.0/16", "169.254.169.254/32"])
    allowed = ("10.1.0.1", "::ffff:10.1.255.255", "169.254.169.254")
    refused = ("10.0.255.255", "10.2.0.0", "::ffff:10.2.0.0", "169.254.169.253", "127.0.0.1", "::1")
    assert all(reach.policy.allows(ipaddress.ip_address(host)) for host in allowed)
    assert not any(reach.policy.allows(ipaddress.ip_address(host)) for host in refused)


def test_of_a_name_with_both_only_the_public_address_is_given() -> None:
    """A name with a private and a public address is connected to at the public one."""

    def look_up(host: str, port: int, **options: Any) -> list[tuple[Any, ...]]:
        return numeric("10.0.0.1", port, **options) + numeric("8.8.8.8", port, **options)

    assert [each[4][0] for each in resolve("both.test", 443, Policy(), look_up)] == ["8.8.8.8"]


def test_a_name_that_is_none_is_refused() -> None:
    """A host that cannot be a name is refused, not passed on."""
    with pytest.raises(Refused, match="no host name"):
        resolve("a" * 70 + ".test", 443, Policy())
