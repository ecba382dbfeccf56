"""A free port for a server that a test starts.

Invariant: two workers of one test run never choose the same: the kernel may well give both the same free port before
either server listens on it.
"""

from __future__ import annotations

import os
import socket

from tests.helpers.workers import WORKER

NUM_WORKERS = 8


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, out of this worker's own eighth of all ports."""
    worker = int(os.environ.get(WORKER, "0")) % NUM_WORKERS
    while True:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = int(listener.getsockname()[1])
        # Servers that find their port taken try the next few.
        if port // 16 % NUM_WORKERS == worker:
            return port
