"""`ack.json`: one entry per server, never claiming more than was acknowledged."""

from __future__ import annotations

from pathlib import Path

from halfscope.record.acks import Acks, Checkpoint, Fork, ServerAck, read_acks, write_ack

DIGEST = bytes(range(16))


def test_each_server_has_an_entry_of_its_own(tmp_path: Path) -> None:
    """Shipping to a second server leaves what the first one acknowledged."""
    path = tmp_path / "ack.json"
    first = ServerAck(acked=Checkpoint(seq=10, digest=DIGEST), ended="ended")
    second = ServerAck(acked=Checkpoint(seq=3, digest=DIGEST))
    write_ack(path, "local", first)
    write_ack(path, "https://elsewhere", second)
    assert read_acks(path).servers == {"local": first, "https://elsewhere": second}
    assert read_acks(path).journal_next == 10
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_claims_nothing(tmp_path: Path) -> None:
    """Then everything is offered again, and the server says what it has."""
    path = tmp_path / "ack.json"
    assert read_acks(path) == Acks()
    for content in (b"", b"{", b"[]", b'{"servers": {"local": 3}}'):
        path.write_bytes(content)
        assert read_acks(path) == Acks()


def test_a_fork_maps_wire_seqs_back_to_the_journal() -> None:
    """The prelude stands before the journal's own records and acknowledges none of them."""
    fork = Fork(stream="cd", forked_from="ab", base=40, at=40, prelude=[b"a", b"b", b"c"])
    assert fork.shift == 3
    for seq, journal_next in ((40, 40), (43, 40), (44, 41), (50, 47)):
        assert ServerAck(acked=Checkpoint(seq=seq, digest=DIGEST), fork=fork).journal_next == journal_next
