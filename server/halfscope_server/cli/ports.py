"""Finding a port: the one asked for, or the next free one with a word about who has it.

Must not import the app. Invariant: the socket returned is already listening, so nobody can take the port between the
choice and the server's start.
"""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass
from pathlib import Path

NUM_NEXT_PORTS = 50
"""How many ports above the one asked for are tried before the system picks one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A listening socket and what to tell about it."""

    listener: socket.socket
    port: int
    taken_by: str
    """Who has the port that was asked for; empty when it was free."""


def listen(host: str, port: int) -> Bound:
    """Listens on a port, or the next free one.

    Args:
        host: address or name to listen on.
        port: 0 for any free one.

    Raises:
        OSError: the address is not one of this machine's, or the port needs rights that the process has not.
    """
    try:
        listener = _listen(host, port)
        return Bound(listener=listener, port=listener.getsockname()[1], taken_by="")
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            # OSError picks its subclass by the number; the text is ours.
            raise OSError(
                error.errno,
                f"{host} port {port} cannot be listened on ({error.strerror}); expected an address of this machine, "
                "such as 127.0.0.1, and a port above 1023",
            ) from error
    owner = describe_owner(port)
    for candidate in (*range(port + 1, min(port + 1 + NUM_NEXT_PORTS, 65536)), 0):
        try:
            listener = _listen(host, candidate)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            continue
        return Bound(listener=listener, port=listener.getsockname()[1], taken_by=owner)
    raise OSError(errno.EADDRINUSE, f"port {port} is taken by {owner}, and no other port of {host} is free")


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError:
        listener.close()
        raise
    return listener


def is_free(host: str, port: int) -> bool:
    """Whether the port could be listened on now."""
    try:
        _listen(host, port).close()
    except OSError:
        return False
    return True


def describe_owner(port: int) -> str:
    """Who listens on a port, in words: `python -m http.server (pid 4711)`, or `another process` where the system
    does not tell."""
    inodes = _listening_inodes(port)
    for process in Path("/proc").glob("[0-9]*") if inodes else ():
        try:
            if not any(_socket_inode(link) in inodes for link in (process / "fd").iterdir()):
                continue
            command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue  # gone meanwhile, or another user's
        return f"{_shortened(command)} (pid {process.name})"
    return "another process"


def _listening_inodes(port: int) -> set[str]:
    """Inodes of the sockets that listen on a port, from the kernel's table: columns local address, state 0A, inode."""
    inodes = set()
    for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6")):
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(fields[9])
    return inodes


def _socket_inode(link: Path) -> str:
    try:
        return str(link.readlink()).removeprefix("socket:[").removesuffix("]")
    except OSError:
        return ""


def _shortened(command: str, limit: int = 60) -> str:
    return command if len(command) <= limit else command[: limit - 1] + "…"
