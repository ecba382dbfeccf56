"""A reverse proxy of a few lines that publishes a server below a path, as a shared machine's front server does.

Invariant: what does not ask for something below the path never reaches the server, so a forgotten prefix is a 404.
"""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

CHUNK_BYTES = 65_536


@contextmanager
def prefix_proxy(port: int, prefix: str) -> Iterator[str]:
    """Serves the server on `port` below `prefix`; the address to open."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                data = self.request.recv(CHUNK_BYTES)
                if not data:
                    return
                head += data
            line, rest = head.split(b"\r\n", 1)
            method, path, version = line.split(b" ")
            if not path.startswith(prefix.encode() + b"/"):
                self.request.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            # One request per connection: only the first line would be rewritten.
            if b"upgrade: websocket" not in rest.lower():
                rest = b"Connection: close\r\n" + b"\r\n".join(
                    field for field in rest.split(b"\r\n") if not field.lower().startswith(b"connection:")
                )
            with socket.create_connection(("127.0.0.1", port)) as upstream:
                upstream.sendall(b" ".join((method, path[len(prefix) :], version)) + b"\r\n" + rest)
                back = threading.Thread(target=_pour, args=(upstream, self.request))
                back.start()
                _pour(self.request, upstream)
                back.join()

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{proxy.server_address[1]}{prefix}"
        finally:
            proxy.shutdown()
            thread.join()


def _pour(source: socket.socket, target: socket.socket) -> None:
    """Everything that comes, until one side is gone; then the other is told."""
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
