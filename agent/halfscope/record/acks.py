"""`ack.json`: what servers have acknowledged of a stream, and under which name and numbers it goes to each.

Written by whoever ships the stream, atomically; read by the journal's quota. Must not import torch or numpy.
Invariant: `next` never claims more than a server acknowledged.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from halfscope.record.layout import write_atomically
from halfscope.wire.messages import GENESIS_DIGEST


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A journal that went its own way after being copied: from `at` on it travels as another stream."""

    stream: str
    forked_from: str
    base: int
    """Seq, in the new stream, of its first record: the last acknowledged seq of the ancestor + 1."""
    at: int
    """Seq, in the journal, of the record that follows the prelude."""
    prelude: list[bytes]
    """Records the new stream begins with: `Start`, declarations, the event that tells of it."""

    @property
    def shift(self) -> int:
        """What is added to a journal seq to give the seq on the wire."""
        return self.base + len(self.prelude) - self.at


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The digest chain, as sent, just before a seq (both as on the wire)."""

    seq: int
    digest: bytes


class ServerAck(msgspec.Struct, frozen=True, kw_only=True):
    """How far a stream is known to one server."""

    acked: Checkpoint
    """Everything before its seq is committed there."""
    rebases: list[Checkpoint] = []
    """Where records were replaced by a `Lost` when sent: the chain as sent cannot be had from the journal before
    these."""
    fork: Fork | None = None
    updated_us: int = 0
    ended: str = ""
    """`ended` or `killed` once everything is acknowledged and the farewell was sent."""
    gone: bool = False
    """The run was deleted there."""

    @property
    def journal_next(self) -> int:
        """Seq, in the journal, of the first record that is not acknowledged."""
        if self.fork is None:
            return self.acked.seq
        return max(self.fork.at, self.acked.seq - self.fork.shift)


NOTHING = ServerAck(acked=Checkpoint(seq=0, digest=GENESIS_DIGEST))


class Acks(msgspec.Struct, frozen=True, kw_only=True):
    """The file: one entry per server."""

    version: int = 1
    servers: dict[str, ServerAck] = {}

    @property
    def journal_next(self) -> int:
        """Everything before it is safe with at least one server."""
        return max((ack.journal_next for ack in self.servers.values()), default=0)


def read_acks(path: Path) -> Acks:
    """What the file says; nothing acknowledged where it is missing or damaged (then it is sent again, and known
    there)."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Acks)
    except (OSError, msgspec.DecodeError, msgspec.ValidationError):
        return Acks()


def write_ack(path: Path, server: str, ack: ServerAck) -> None:
    """Replace one server's entry.

    Raises:
        OSError: the directory cannot be written.
    """
    servers = dict(read_acks(path).servers)
    servers[server] = ack
    write_atomically(path, msgspec.json.encode(Acks(servers=servers)))
