"""Bytes to messages and back.

Owns encoding of records and frames, the batch body and the digest chain. Must not import torch or numpy.
Invariant: a size is checked before the bytes behind it are decompressed or decoded.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator

import msgspec
import zstandard

from halfscope.wire.errors import DecodeError, LimitError
from halfscope.wire.messages import AgentFrame, Record, ServerFrame

MAX_FRAME_BYTES = 8 * 1024 * 1024
"""Largest frame either side reads."""
MAX_BODY_BYTES = 32 * 1024 * 1024
"""Largest batch body after decompression."""
MAX_RECORD_BYTES = 8 * 1024 * 1024
"""Largest single journal record."""

_LENGTH = struct.Struct("<I")

_encoder = msgspec.msgpack.Encoder()
_record_decoder: msgspec.msgpack.Decoder[Record] = msgspec.msgpack.Decoder(Record)
_agent_decoder: msgspec.msgpack.Decoder[AgentFrame] = msgspec.msgpack.Decoder(AgentFrame)
_server_decoder: msgspec.msgpack.Decoder[ServerFrame] = msgspec.msgpack.Decoder(ServerFrame)


def encode(message: Record | AgentFrame | ServerFrame) -> bytes:
    """One message as msgpack."""
    return _encoder.encode(message)


def decode_record(payload: bytes | memoryview) -> Record:
    """A journal record.

    Raises:
        DecodeError: the bytes are no record of this protocol.
    """
    try:
        return _record_decoder.decode(payload)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise DecodeError(f"not a journal record: {error}") from error


def decode_agent_frame(data: bytes) -> AgentFrame:
    """A frame sent by an agent.

    Raises:
        LimitError: longer than `MAX_FRAME_BYTES`.
        DecodeError: no agent frame of this protocol.
    """
    _check_frame_size(data)
    try:
        return _agent_decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise DecodeError(f"not an agent frame: {error}") from error


def decode_server_frame(data: bytes) -> ServerFrame:
    """A frame sent by a server; raises like `decode_agent_frame`."""
    _check_frame_size(data)
    try:
        return _server_decoder.decode(data)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise DecodeError(f"not a server frame: {error}") from error


def chain(digest: bytes, payload: bytes | memoryview) -> bytes:
    """The digest chain one record further: blake2b-128 of (digest before, payload)."""
    state = hashlib.blake2b(digest, digest_size=16)
    state.update(payload)
    return state.digest()


def pack_body(payloads: Iterable[bytes]) -> tuple[int, bytes]:
    """Record payloads as one compressed body.

    Returns:
        (size in bytes before compression, the zstd frame).
    """
    raw = b"".join(part for payload in payloads for part in (_LENGTH.pack(len(payload)), payload))
    return len(raw), zstandard.ZstdCompressor(level=1).compress(raw)


def unpack_body(body: bytes, raw_bytes: int) -> Iterator[memoryview]:
    """The record payloads of a body, in order.

    Args:
        body: the zstd frame of a batch.
        raw_bytes: the size the batch declared; must equal what the zstd frame itself declares.

    Raises:
        LimitError: a declared size above `MAX_BODY_BYTES`, or the two declarations differ.
        DecodeError: not zstd, or records that do not fill the body exactly.
    """
    # python-zstandard ignores max_output_size when the frame declares its own size, so that is what is checked.
    try:
        declared = zstandard.get_frame_parameters(body).content_size
    except zstandard.ZstdError as error:
        raise DecodeError(f"batch body is not zstd: {error}") from error
    if raw_bytes > MAX_BODY_BYTES or declared != raw_bytes:
        raise LimitError(
            f"batch body declares {declared} bytes, its batch {raw_bytes}; at most {MAX_BODY_BYTES} are taken"
        )
    try:
        raw = memoryview(zstandard.ZstdDecompressor().decompress(body, max_output_size=max(raw_bytes, 1)))
    except zstandard.ZstdError as error:
        raise DecodeError(f"batch body is damaged: {error}") from error
    if len(raw) != raw_bytes:
        raise DecodeError(f"batch body holds {len(raw)} bytes where {raw_bytes} were declared")
    return _split(raw)


def _split(raw: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(raw):
        if at + _LENGTH.size > len(raw):
            raise DecodeError("batch body ends inside a record length")
        (size,) = _LENGTH.unpack_from(raw, at)
        at += _LENGTH.size
        if size > MAX_RECORD_BYTES or at + size > len(raw):
            raise DecodeError(f"record of {size} bytes does not fit its batch body")
        yield raw[at : at + size]
        at += size


def _check_frame_size(data: bytes) -> None:
    if len(data) > MAX_FRAME_BYTES:
        raise LimitError(f"frame of {len(data)} bytes; at most {MAX_FRAME_BYTES} are taken")
