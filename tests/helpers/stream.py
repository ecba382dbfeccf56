"""The sending side of one stream, for tests: greets, numbers its records, chains their digests, cuts batches.

What the agent's session does for a real sender, without its timers, so that a test can send a batch twice, late,
altered or out of order. Must not import the server. Invariant: batches made one after the other are the one history of
a stream.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from halfscope.wire.codec import chain, decode_server_frame, encode, pack_body
from halfscope.wire.messages import (
    GENESIS_DIGEST,
    AgentFrame,
    Batch,
    Hello,
    Record,
    ServerFrame,
    StreamInfo,
    Welcome,
)


class Stream:
    """One stream of one run."""

    def __init__(self, run_id: str = "0123456789abcdef", stream: str = "01", info: StreamInfo | None = None) -> None:
        self.run_id, self.stream = run_id, stream
        self.info = StreamInfo() if info is None else info
        self.epoch, self.next, self.digest = 0, 0, GENESIS_DIGEST

    @property
    def key(self) -> tuple[str, str]:
        return self.run_id, self.stream

    def hello(self) -> Hello:
        return Hello(self.run_id, self.stream, self.info)

    def welcomed(self, welcome: object) -> Welcome:
        """Go on where the server says; anything but a welcome fails the test."""
        assert isinstance(welcome, Welcome), welcome
        self.epoch, self.next, self.digest = welcome.epoch, welcome.next, welcome.digest
        return welcome

    def batch(self, *records: Record, count: int | None = None) -> Batch:
        """The next records as a batch."""
        return self.batch_of([encode(record) for record in records], count=count)

    def batch_of(self, payloads: Sequence[bytes], *, count: int | None = None) -> Batch:
        """The next records, encoded, as a batch.

        Args:
            count: what the batch says that it holds, where that is not the truth.
        """
        for payload in payloads:
            self.digest = chain(self.digest, payload)
        raw_bytes, body = pack_body(payloads)
        first, size = self.next, len(payloads) if count is None else count
        self.next += size
        return Batch(self.run_id, self.stream, self.epoch, first, size, self.digest, raw_bytes, body)


def to_body(*frames: AgentFrame) -> bytes:
    """Frames as the body of `POST /api/v1/ingest`: each behind its length."""
    return b"".join(struct.pack("<I", len(data)) + data for data in map(encode, frames))


def from_body(body: bytes) -> list[ServerFrame]:
    """The frames of its answer."""
    found, at = [], 0
    while at < len(body):
        (size,) = struct.unpack_from("<I", body, at)
        found.append(decode_server_frame(body[at + 4 : at + 4 + size]))
        at += 4 + size
    return found
