"""A journal written by version 1 stays readable: it may lie on a disk for years before somebody ships it.

`python tests/agent/record/test_golden.py` writes the file of a new format; that of a released one is never changed.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from halfscope.record.journal import JournalWriter
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import read_checkpoint, read_info, read_stream
from halfscope.wire.codec import encode
from halfscope.wire.messages import GENESIS_DIGEST, Declare, End, Event, Record, Series, Start, StreamInfo

GOLDEN = Path(__file__).parent / "golden" / "v1"
SEGMENT = "00000000000000000000.seg"
INFO = StreamInfo(rank=1, world_size=2, attempt=3, host="node", pid=4, started_us=5)
RECORDS: list[Record] = [
    Start(time_us=1, project="p", name="n", config={"lr": 0.1}),
    Declare(series=[Series(sid=0, name="loss")]),
    Event(kind="skip", step=2, time_us=3, attributes={"class": "probe"}),
    End(outcome="finished", step=4, time_us=5),
]


def write(directory: Path) -> bytes:
    place = StreamPlace(directory=directory, run_id="run1", stream="ab")
    writer = JournalWriter(place, INFO, lambda: [encode(record) for record in RECORDS[:2]], quota_bytes=1 << 20)
    writer.open()
    writer.append([encode(record) for record in RECORDS[2:]])
    writer.close()
    return place.segment(0).read_bytes()


def test_a_journal_of_version_1_is_read(tmp_path: Path) -> None:
    """Who wrote it, where its chain begins, and every record."""
    place = StreamPlace(directory=tmp_path, run_id="run1", stream="ab")
    place.path.mkdir(parents=True)
    shutil.copy(GOLDEN / SEGMENT, place.segment(0))
    assert read_info(place) == INFO
    assert read_checkpoint(place, 3) == (0, GENESIS_DIGEST)
    assert list(read_stream(place)) == list(enumerate(RECORDS))


def test_a_journal_is_written_as_version_1_did(tmp_path: Path) -> None:
    """Byte for byte: whoever changes the format writes a new version of it."""
    assert write(tmp_path) == (GOLDEN / SEGMENT).read_bytes()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        (GOLDEN / SEGMENT).write_bytes(write(Path(scratch)))
