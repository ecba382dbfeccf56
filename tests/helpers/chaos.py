"""A proxy on loopback that treats each connection badly in a way of its own, until it is told to be calm.

Delays, slices of one byte, resets in the middle of a frame, half-open connections, and everything an agent sent once
more over a connection of its own. Knows nothing of what passes. Invariant: bytes of a connection that arrive, arrive in
order.
"""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal

Way = Literal["calm", "delay", "slices", "reset", "half-open", "duplicate"]
WAYS: tuple[Way, ...] = ("delay", "slices", "reset", "half-open", "duplicate")
CHUNK_BYTES = 4096
MAX_DELAY_S = 0.02
MAX_BYTES = 6000
"""After at most so many from the agent a connection breaks; those of one frame are some hundreds."""
SILENCE_S = 0.5
NUM_SLICED_BYTES = 1500


class ChaosProxy:
    """Between an agent and one of several servers."""

    def __init__(self, ports: Sequence[int], seed: int) -> None:
        self.num_connections: Counter[Way] = Counter()
        """How many were treated how."""
        self.is_calm = False
        self._ports = ports
        self._chance = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for end in self._open:
                _reset(end)

    def _accept(self) -> None:
        ways: list[Way] = []
        with contextlib.suppress(OSError):
            while True:
                ways = ways or self._chance.sample(WAYS, len(WAYS))
                agent, _ = self._listener.accept()
                port = self._chance.choice(self._ports)
                way: Way = "calm" if self.is_calm else ways.pop()
                self.num_connections[way] += 1
                connection = _Connection(agent, port, way, random.Random(self._chance.random()))
                with self._lock:
                    self._open += connection.ends
                threading.Thread(target=connection.run, daemon=True).start()


class _Connection:
    def __init__(self, agent: socket.socket, port: int, way: Way, chance: random.Random) -> None:
        self._agent, self._port, self._way, self._chance = agent, port, way, chance
        self._server: socket.socket | None = None
        with contextlib.suppress(OSError):
            self._server = socket.create_connection(("127.0.0.1", port), timeout=5)
        self._limit = None if way == "calm" else chance.randrange(1, MAX_BYTES)
        self._sent = bytearray()
        self.ends = [end for end in (agent, self._server) if end is not None]

    def run(self) -> None:
        if self._server is None:
            _reset(self._agent)
            return
        back = threading.Thread(target=self._pump, args=(self._server, self._agent, self._pass_on), daemon=True)
        back.start()
        self._pump(self._agent, self._server, self._count_and_pass_on)
        if self._way == "half-open":
            # Nothing more passes, and neither end hears of it; the server is never told.
            time.sleep(SILENCE_S)
            _reset(self._agent)
            return
        for end in self.ends:
            _reset(end)
        if self._way == "duplicate":
            self._send_again()

    def _pump(
        self, source: socket.socket, sink: socket.socket, pass_on: Callable[[socket.socket, bytes], bool]
    ) -> None:
        with contextlib.suppress(OSError, ValueError):
            source.settimeout(None)
            while data := source.recv(CHUNK_BYTES):
                if not pass_on(sink, data):
                    return
            sink.shutdown(socket.SHUT_WR)

    def _count_and_pass_on(self, sink: socket.socket, data: bytes) -> bool:
        """False once the connection has had its share: a part of what came was passed on."""
        rest = data if self._limit is None else data[: max(0, self._limit - len(self._sent))]
        self._sent += rest
        return self._pass_on(sink, rest) and len(rest) == len(data)

    def _pass_on(self, sink: socket.socket, data: bytes) -> bool:
        if self._way == "delay":
            time.sleep(self._chance.uniform(0, MAX_DELAY_S))
        sliced = NUM_SLICED_BYTES if self._way == "slices" else 0
        for at in range(min(sliced, len(data))):
            sink.sendall(data[at : at + 1])
        sink.sendall(data[sliced:])
        return True

    def _send_again(self) -> None:
        """All that the agent said, greetings and batches, to whoever may hear it a second time."""
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._port), timeout=5) as again:
            again.sendall(self._sent)
            again.settimeout(0.3)
            while again.recv(CHUNK_BYTES):
                pass


def _reset(end: socket.socket) -> None:
    """Close as a machine does that lost its memory: RST instead of FIN."""
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RD)
    end.close()
