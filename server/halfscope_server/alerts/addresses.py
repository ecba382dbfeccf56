"""Which addresses notifications may reach: the guard against being sent into one's own network.

Whoever can set up a channel could otherwise make the server ask what only the server can reach: the cloud's metadata,
a database on loopback, a router. Owns the table of networks and the one name look-up of a delivery. Must not import the
store, nor open a connection. Invariant: an address that `resolve` gives was looked up once and checked; whoever
connects to it does not ask the name again, so a name whose answer changes in between gains nothing.

How an address is spelled (decimal, octal, mapped into IPv6) does not matter: what is checked is what would be connected
to, and IPv6 forms that carry an IPv4 address are judged by that one too.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LookUp = Callable[..., Sequence[tuple[Any, ...]]]
"""`socket.getaddrinfo`, or what stands for it in a test."""

PRIVATE: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in ("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "::1/128", "fc00::/7")
)
"""What an operator may mean by "my own network": RFC 1918, RFC 6598 (carrier NAT and overlays), loopback, RFC 4193."""

METADATA: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        "100.100.100.200/32",  # Alibaba Cloud
        "168.63.129.16/32",  # Azure; looks public
        "169.254.0.0/16",  # AWS, Google, Azure, OpenStack and others live on 169.254.169.254, AWS ECS on .170.2
        "192.0.0.192/32",  # Oracle Cloud
        "fd00:ec2::/32",  # AWS over IPv6
        "fd20:ce::254/128",  # Google over IPv6
    )
)
"""Where clouds hand out credentials: not even `private` lets these through, only their own network by name."""

NEVER: tuple[Network, ...] = tuple(
    ipaddress.ip_network(text)
    for text in (
        *("0.0.0.0/8", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24"),
        *("203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4"),
        *("100::/64", "2001:db8::/32", "3fff::/20", "5f00::/16", "fe80::/10", "fec0::/10", "ff00::/8"),
        # Forms that carry an IPv4 address and that no public host uses any more: IPv4-compatible, translated, local
        # NAT64, Teredo (with the rest of the IETF's own), 6to4.
        *("::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48", "2001::/23", "2002::/16"),
    )
)
"""Reserved, for documentation, multicast, link-local: the IANA special-purpose registries. `ipaddress` knows most of
them too, but what it calls global has changed between Python versions."""

MAPPED = ipaddress.IPv6Network("::ffff:0:0/96")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
"""How IPv6-only machines reach IPv4 (RFC 6052)."""
ISATAP_MARKS = (0x00005EFE, 0x02005EFE)
"""Bits 32 to 63 of an ISATAP address; the IPv4 address follows (RFC 5214)."""


class Refused(ValueError):
    """An address that notifications must not go to; the text says which, why and what the operator can do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the operator allows besides public addresses."""

    allow_private: bool = False
    allow_networks: tuple[Network, ...] = ()

    def allows(self, address: Address) -> bool:
        """Whether notifications may be sent to this address."""
        if isinstance(address, ipaddress.IPv6Address):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
            if address in MAPPED or address in NAT64:
                return self._allows_plain(inner)
            if int(address) >> 32 & 0xFFFFFFFF in ISATAP_MARKS and not self._allows_plain(inner):
                return False
        return self._allows_plain(address)

    def _allows_plain(self, address: Address) -> bool:
        if _within(address, self.allow_networks):
            return True
        if _within(address, METADATA):
            return False
        if _within(address, PRIVATE):
            return self.allow_private
        return address.is_global and not _within(address, NEVER)


def resolve(host: str, port: int, policy: Policy, look_up: LookUp = socket.getaddrinfo) -> list[tuple[Any, ...]]:
    """Look a name up, once, and keep the addresses that may be connected to.

    Args:
        host: a name or an address in any spelling.
        port: 1 to 65535.
        policy: what is allowed.
        look_up: gives what `socket.getaddrinfo` gives.

    Returns:
        As `socket.getaddrinfo`, at least one.

    Raises:
        Refused: none of its addresses is allowed.
        OSError: the name is not known.
    """
    try:
        found = look_up(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP)
    except UnicodeError as error:
        raise Refused(f"{host[:100]!r} is no host name") from error
    allowed = [each for each in found if policy.allows(_plain(each[4][0]))]
    if not allowed:
        address = str(found[0][4][0]) if found else "nowhere"
        raise Refused(
            f"{host} is {'' if address == host else f'{address}, '}an address of a private or reserved network; "
            "notifications go to public addresses only, unless the server's operator allows more with "
            "HALFSCOPE_ALERT_ALLOW_PRIVATE or HALFSCOPE_ALERT_ALLOW_NETWORK"
        )
    return allowed


def _plain(text: str) -> Address:
    """Without the zone of a link-local address (`fe80::1%eth0`)."""
    return ipaddress.ip_address(text.partition("%")[0])


def _within(address: Address, networks: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in networks)
