"""A network inside the test: connections whose frames move when the test says so, into a real writer on a real store.

Owns what lies between an agent's `Shipper` and the server's `Writer`: frames under way in both directions, whether
anybody listens. Nothing is sent by itself, so a test decides what is delayed, doubled, overtaken or lost with its
connection. Must not import sockets. Invariant: frames are bytes on the way, as on a real wire.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from halfscope.send.transport import TransportError
from halfscope.wire.codec import decode_server_frame, encode
from halfscope.wire.errors import SequenceError
from halfscope.wire.messages import AgentFrame, ServerFrame
from halfscope.wire.server_session import ServerSession
from halfscope_server.ingest.writer import Writer

WAIT_S = 60.0


class Connection:
    """One connection; a `Transport` to its agent, a client to the server's writer."""

    def __init__(self, writer: Callable[[], Writer]) -> None:
        self.to_server: deque[bytes] = deque()
        self.to_agent: deque[bytes] = deque()
        self.is_cut = False
        self._writer = writer
        self._session = ServerSession()
        self._arrived: deque[bytes] = deque()
        self._settled = threading.Semaphore(0)

    # ---- the agent's side -------------------------------------------------------------------

    def send(self, frames: Sequence[AgentFrame]) -> None:
        if self.is_cut:
            raise TransportError("cut")
        self.to_server.extend(encode(frame) for frame in frames)

    def receive(self, _timeout_s: float) -> list[ServerFrame]:
        if self.is_cut:
            raise TransportError("cut")
        frames = [decode_server_frame(data) for data in self._arrived]
        self._arrived.clear()
        return frames

    def close(self) -> None:
        self.cut()

    # ---- what the test does -----------------------------------------------------------------

    def cut(self) -> None:
        """Whatever is under way is lost."""
        self.is_cut = True
        self.to_server.clear()
        self.to_agent.clear()

    def serve(self, count: int, *, twice: bool = False) -> None:
        """Let frames arrive at the server, which handles them as one group.

        Args:
            twice: each comes a second time.
        """
        num_submitted = 0
        for _ in range(min(count, len(self.to_server))):
            data = self.to_server.popleft()
            for _ in range(1 + twice):
                num_submitted += self._take(data)
        for _ in range(num_submitted):
            assert self._settled.acquire(timeout=WAIT_S), "the writer does not answer"
        self.to_agent.extend(self._session.data_to_send())

    def deliver(self, count: int, *, twice: bool = False) -> None:
        """Let answers arrive at the agent."""
        for _ in range(min(count, len(self.to_agent))):
            data = self.to_agent.popleft()
            self._arrived.extend([data] * (1 + twice))

    def answer(self, frames: Sequence[ServerFrame], *, num_frames: int, num_bytes: int) -> None:
        """Called by the writer."""
        self._session.answer(frames, num_bytes=num_bytes)
        self._settled.release(num_frames)

    def _take(self, data: bytes) -> bool:
        try:
            frame = self._session.receive(data)
        except SequenceError:
            self.cut()
            return False
        return frame is not None and self._writer().submit(frame, len(data), self)
