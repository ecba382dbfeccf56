"""The server's side of `halfscope.v1`, without sockets, database or clock.

Owns what one connection may say: whole frames, names that are names, versions both sides speak; which streams it was
granted; how much of what it sent is not answered yet; and the order of answers. Whoever drives it hands the frames that
come out of `receive` to the writer, the writer's answers to `answer`, and sends what `data_to_send` gives. Must not
import torch or numpy. Invariant: of several acknowledgements of one stream only the newest is sent, and never before an
answer that was given earlier.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from halfscope.wire.codec import decode_agent_frame, encode
from halfscope.wire.errors import DecodeError, LimitError, SequenceError
from halfscope.wire.messages import Ack, AgentFrame, Batch, Gone, Hello, Refuse, ServerFrame, Welcome

VERSIONS = (1,)
"""Protocol versions this server speaks."""
WINDOW_BYTES = 4 * 1024 * 1024
"""Bytes of one connection that may wait for their commit; beyond it nothing more is read."""
MAX_STREAMS = 4096
"""Streams of one connection: one sender ships those of a node."""
MAX_RANK = 2**31 - 1
MAX_DIMENSIONS = 16
"""Of a device mesh."""
MAX_TIME_US = 2**56
MAX_TEXT = 255

Key = tuple[str, str]
"""(run_id, stream)"""

_RUN_ID = re.compile(r"[0-9a-z]{1,64}\Z")
_STREAM = re.compile(r"[0-9a-f]{1,64}\Z")


class ServerSession:
    """Protocol state of one connection, or of one `POST /api/v1/ingest`."""

    def __init__(self) -> None:
        self._granted: dict[Key, int] = {}
        self._outgoing: dict[object, ServerFrame] = {}
        self._num_outgoing = 0
        self._waiting_bytes = 0

    @property
    def granted(self) -> Mapping[Key, int]:
        """The epoch of each stream that this connection was granted and has not lost since."""
        return self._granted

    @property
    def has_room(self) -> bool:
        """Whether another frame should be read now."""
        return self._waiting_bytes < WINDOW_BYTES

    def receive(self, data: bytes) -> AgentFrame | None:
        """Take in one frame.

        Returns:
            The frame, to be handed on and answered with `answer`; or None where it is refused here already.

        Raises:
            SequenceError: bytes that are no frame, after which the connection cannot be trusted: send what
                `data_to_send` gives, and close.
        """
        try:
            frame = decode_agent_frame(data)
        except (DecodeError, RecursionError) as error:
            self._put(Refuse("bad_batch", f"{error}; this connection is closed"))
            raise SequenceError(str(error)) from error
        except LimitError as error:
            self._put(Refuse("too_large", f"{error}; this connection is closed"))
            raise SequenceError(str(error)) from error
        refused = self._refused(frame)
        if refused is not None:
            self._put(refused)
            return None
        if isinstance(frame, Batch):
            self._waiting_bytes += len(data)
        return frame

    def answer(self, frames: Iterable[ServerFrame], *, num_bytes: int = 0) -> None:
        """Queue what the writer says.

        Args:
            frames: in order.
            num_bytes: size of the batches that are hereby settled.
        """
        self._waiting_bytes = max(0, self._waiting_bytes - num_bytes)
        for frame in frames:
            match frame:
                case Welcome():
                    self._granted[frame.run_id, frame.stream] = frame.epoch
                case Gone():
                    self._granted.pop((frame.run_id, frame.stream), None)
                case Refuse(code="fenced"):
                    self._granted.pop((frame.run_id, frame.stream), None)
                case _:
                    pass
            self._put(frame)

    def data_to_send(self) -> list[bytes]:
        """Frames to be sent now, each a message of its own."""
        frames, self._outgoing = list(self._outgoing.values()), {}
        return [encode(frame) for frame in frames]

    def _put(self, frame: ServerFrame) -> None:
        self._num_outgoing += 1
        slot: object = self._num_outgoing
        if isinstance(frame, Ack):
            slot = (frame.run_id, frame.stream)
            self._outgoing.pop(slot, None)
        self._outgoing[slot] = frame

    def _refused(self, frame: AgentFrame) -> Refuse | None:
        if not _RUN_ID.match(frame.run_id) or not _STREAM.match(frame.stream):
            return Refuse(
                "bad_batch",
                f"run {frame.run_id[:80]!r}, stream {frame.stream[:80]!r}: expected 1 to 64 lowercase letters and "
                "digits, and 1 to 64 hexadecimal ones",
            )
        if not isinstance(frame, Hello):
            return None
        if not set(frame.versions) & set(VERSIONS):
            return Refuse(
                "version",
                f"the agent speaks versions {frame.versions[:8]} of the protocol, this server {list(VERSIONS)}; "
                "upgrade the older of the two",
                frame.run_id,
                frame.stream,
            )
        if len(self._granted) >= MAX_STREAMS:
            return Refuse(
                "busy", f"more than {MAX_STREAMS} streams on one connection", frame.run_id, frame.stream, 60.0
            )
        return _refused_info(frame)


def _refused_info(hello: Hello) -> Refuse | None:
    info = hello.info
    numbers_are_fine = (
        0 <= info.rank <= MAX_RANK
        and 0 <= info.local_rank <= MAX_RANK
        and 1 <= info.world_size <= MAX_RANK
        and 0 <= info.attempt <= MAX_TIME_US
        and 0 <= info.pid <= MAX_TIME_US
        and 0 <= info.started_us <= MAX_TIME_US
        and 0 <= hello.first_seq <= MAX_TIME_US
        and all(len(place) == 2 and 0 <= place[0] < place[1] <= MAX_RANK for place in info.mesh.values())
    )
    texts_are_fine = all(
        len(text) <= MAX_TEXT and "\x00" not in text for text in (info.host, info.forked_from, *info.mesh)
    )
    if numbers_are_fine and texts_are_fine and len(info.mesh) <= MAX_DIMENSIONS:
        return None
    return Refuse(
        "bad_batch",
        "a greeting with a rank, place in the mesh, attempt, time or host outside of what these can be",
        hello.run_id,
        hello.stream,
    )
