"""The segment format: whatever happens to the bytes, a frame that comes out is one that went in."""

from __future__ import annotations

from halfscope.record import segment
from halfscope.wire.codec import encode
from halfscope.wire.messages import Lost, Points, StreamInfo
from hypothesis import given
from hypothesis import strategies as st

HEADER = segment.SegmentHeader(
    version=segment.FORMAT_VERSION,
    run_id="r",
    stream="s",
    info=StreamInfo(rank=1),
    first_seq=7,
    digest=bytes(range(16)),
)


def frames_from(data: bytes, at: int = 0) -> list[tuple[int, bytes]]:
    found = []
    place = segment.find_frame(data, at)
    while place is not None:
        frame = segment.read_frame(data, place)
        assert frame is not None
        found.append((frame.seq, frame.payload))
        place = segment.find_frame(data, frame.end)
    return found


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(0, 2**64 - 10))
def test_frames_come_back_as_they_were(payloads: list[bytes], first_seq: int) -> None:
    """Any payloads, empty ones included, at any seq."""
    wanted = [(first_seq + index, payload) for index, payload in enumerate(payloads)]
    data = segment.pack_header(HEADER) + b"".join(segment.pack(seq, payload) for seq, payload in wanted)
    header, at = segment.read_header(data)
    assert header == HEADER
    assert frames_from(data, at) == wanted


def test_a_flipped_byte_costs_the_record_it_is_in_and_no_other() -> None:
    """Every byte of a small segment, flipped in turn in all its bits."""
    wanted = [(7 + index, bytes([index]) * (3 + index)) for index in range(4)]
    packed = [segment.pack(seq, payload) for seq, payload in wanted]
    data = b"".join(packed)
    owner = [index for index, frame in enumerate(packed) for _ in frame]
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 0xFF
        assert frames_from(bytes(damaged)) == [frame for index, frame in enumerate(wanted) if index != owner[at]]


def test_a_cut_frame_is_no_frame() -> None:
    """Whatever is left of it, down to nothing."""
    frame = segment.pack(3, b"payload")
    assert all(segment.read_frame(frame[:length], 0) is None for length in range(len(frame)))
    assert segment.read_frame(frame, 0) is not None


def test_a_damaged_header_hides_no_record() -> None:
    """Records behind a header that cannot be read are found all the same."""
    data = bytearray(segment.pack_header(HEADER) + segment.pack(7, b"first"))
    data[10] ^= 1
    header, at = segment.read_header(bytes(data))
    assert header is None
    assert frames_from(bytes(data), at) == [(7, b"first")]


def test_a_damaged_header_is_not_taken_for_a_record() -> None:
    """Their magics differ in one byte, which the checksum covers."""
    header = bytearray(segment.pack_header(HEADER))
    record = segment.pack(7, b"first")
    header[:4] = record[:4]
    assert frames_from(bytes(header) + record) == [(7, b"first")]


def test_only_a_lost_record_covers_more_than_its_own_seq() -> None:
    """A Lost covers to its last seq; anything else, its own."""
    lost = encode(Lost(first_seq=5, last_seq=9, reason="journal quota"))
    points = encode(Points(steps=b"", times_us=b"", columns=[]))
    assert segment.covers(5, lost) == 9
    assert segment.covers(5, points) == 5
