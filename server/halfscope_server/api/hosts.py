"""Which host names and origins are ours.

Pure functions on header values; must not import fastapi. Invariant: a name that is neither this machine's own nor
allowed by hand is refused whatever its port, so a page on a name that was rebound to 127.0.0.1 reads nothing; while any
port is fine, because `ssh -L` and containers change it.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}


def split_host(value: str) -> tuple[str, int | None]:
    """Name and port of a Host header, `[::1]:8000` included; the name in lower case, without brackets and final dot.

    Raises:
        ValueError: no host, or more than a host: user names, paths, blanks.
    """
    if not value or any(character in value for character in "@/\\?# \t\r\n,"):
        raise ValueError(f"not a host name: {value!r}")
    parts = urlsplit(f"//{value}")
    if not parts.hostname:
        raise ValueError(f"not a host name: {value!r}")
    return parts.hostname.lower().removesuffix("."), parts.port


class HostPolicy:
    """Judges Host and Origin headers.

    Args:
        bound: the address listened on. Bound to more than loopback, IP literals are taken too: a rebound name is never
            one.
        allow_hosts: further names, each with a port (`name:8443`) or without.
    """

    def __init__(self, *, bound: str, allow_hosts: tuple[str, ...] = ()) -> None:
        self._allowed = {split_host(name) for name in allow_hosts}
        self._names = _LOOPBACK_NAMES | {name for name, _ in self._allowed} | {bound.lower()}
        self._any_address = not _is_loopback(bound)

    def allows_host(self, header: str) -> bool:
        """Whether a Host header names this server."""
        try:
            name, _ = split_host(header)
        except ValueError:
            return False
        return name in self._names or (self._any_address and _is_address(name))

    def allows_origin(self, origin: str, host_header: str) -> bool:
        """Whether a page of this origin may change things: the page came from the very address it asks, port included.

        Behind a proxy that rewrites Host, an origin counts whose name was allowed by hand, at the scheme's own port or
        the port given.
        """
        try:
            parts = urlsplit(origin)
            name, port = split_host(parts.netloc)
            asked_name, asked_port = split_host(host_header)
        except ValueError:
            return False
        default = _DEFAULT_PORTS.get(parts.scheme)
        if default is None or parts.path or parts.query or parts.fragment:
            return False
        if (name, port or default) == (asked_name, asked_port or default):
            return self.allows_host(host_header)
        return (name, port) in self._allowed or (name, port or default) in self._allowed


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(bound: str) -> bool:
    return bound == "localhost" or (_is_address(bound) and ipaddress.ip_address(bound).is_loopback)
