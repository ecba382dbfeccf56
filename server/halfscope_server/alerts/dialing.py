"""Connections to checked addresses, with an end in time.

Owns opening a socket for a channel and TLS over it. Must not speak a protocol. Invariants: a connection goes to an
address that `addresses.resolve` gave and no other; TLS checks the certificate against the name that was asked for; and
at the deadline the socket is shut, however slowly the other side trickles.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache

from halfscope_server.alerts.addresses import LookUp, Policy, Refused, resolve

CONNECT_S = 5.0
"""For one address; a name may have several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How channels reach the outside: what they may connect to, and for how long they may take."""

    policy: Policy = field(default_factory=Policy)
    send_s: float = 15.0
    """For one message, the look-up of the name apart: the resolver has limits of its own."""
    look_up: LookUp = field(default=socket.getaddrinfo)
    tls: ssl.SSLContext | None = None
    """None: the system's certificates. `SSL_CERT_FILE` is honoured, as everywhere."""

    @classmethod
    def allowed(cls, *, private: bool, networks: Sequence[str]) -> Reach:
        """As the settings say."""
        allow = tuple(ipaddress.ip_network(text) for text in networks)
        return cls(policy=Policy(allow_private=private, allow_networks=allow))

    @contextlib.contextmanager
    def connection(self, host: str, port: int, *, tls: bool) -> Iterator[socket.socket]:
        """An open connection, closed at the end of the block or at the deadline.

        Raises:
            Refused: the address is not allowed.
            OSError: it cannot be reached, or its certificate is not good; `TimeoutError` past the deadline.
        """
        end_s = time.monotonic() + self.send_s
        raw = self._dial(host, port, end_s)
        # Shut through a second handle: the first one may be inside TLS, in another thread.
        handle, is_over = raw.dup(), threading.Event()
        timer = threading.Timer(max(0.0, end_s - time.monotonic()), _shut, (handle, is_over))
        timer.daemon = True
        timer.start()
        wrapped: socket.socket | None = None
        late = f"no answer within {self.send_s:g} s"
        try:
            wrapped = self.wrap(raw, host) if tls else raw
            yield wrapped
            if is_over.is_set():
                raise TimeoutError(late)  # what was read ended where we cut it
        except Exception as error:
            if is_over.is_set() and not isinstance(error, TimeoutError):
                raise TimeoutError(late) from error
            raise
        finally:
            timer.cancel()
            timer.join()
            handle.close()
            (wrapped or raw).close()

    def wrap(self, raw: socket.socket, host: str) -> ssl.SSLSocket:
        """TLS over a connection, for the name that was asked for."""
        return (self.tls or default_context()).wrap_socket(raw, server_hostname=host)

    def _dial(self, host: str, port: int, end_s: float) -> socket.socket:
        failure: OSError | None = None
        for family, kind, protocol, _name, address in resolve(host, port, self.policy, self.look_up):
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                break
            made = socket.socket(family, kind, protocol)
            try:
                made.settimeout(min(CONNECT_S, left_s))
                made.connect(address)
                made.settimeout(max(0.001, end_s - time.monotonic()))
            except OSError as error:
                made.close()
                failure = error
            else:
                return made
        raise failure or TimeoutError(f"no connection to {host} within {self.send_s:g} s")


@cache
def default_context() -> ssl.SSLContext:
    """The system's certificates; reading them takes tens of milliseconds."""
    return ssl.create_default_context()


def explain(error: BaseException, host: str) -> str:
    """What went wrong with a connection, in words that hold nothing but the host's name."""
    if isinstance(error, Refused):
        return str(error)
    if isinstance(error, socket.gaierror):
        return f"the name {host} is not known: {error.strerror}"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {host} is not good: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS with {host}: {getattr(error, 'reason', '') or type(error).__name__}"
    if isinstance(error, TimeoutError):
        return f"{host} did not answer in time"
    if isinstance(error, ConnectionRefusedError):
        return f"{host} refuses connections on this port: nothing listens there"
    if isinstance(error, OSError) and error.strerror:
        return f"{host} cannot be reached: {error.strerror}"
    return f"the connection to {host} broke: {type(error).__name__}"


def _shut(handle: socket.socket, is_over: threading.Event) -> None:
    is_over.set()
    with contextlib.suppress(OSError):
        handle.shutdown(socket.SHUT_RDWR)
