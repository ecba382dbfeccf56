"""Looks for ways to lose, double or misread records, with other examples each time: `make fuzz`.

    python -m tests.fuzz --seconds 60 [--seed N]

Three parts share the time: the whole way against its model, damaged journals, and frames that are no frames. Prints
`name value unit` lines, the summary last, and what is needed to see a failure again. Must not be part of `make test`.
Invariant: exits 0 only when nothing was found.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from halfscope.record.acks import read_acks
from halfscope.record.journal import JournalWriter
from halfscope.record.layout import StreamPlace
from halfscope.record.reader import Entry, JournalReader
from halfscope.wire.codec import decode_record, encode
from halfscope.wire.errors import SequenceError
from halfscope.wire.messages import Batch, Event, Hello, Lost, StreamInfo
from halfscope.wire.server_session import ServerSession
from halfscope_server.store.store import Store
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.helpers.keeper import keep
from tests.helpers.stream import Stream
from tests.server.test_nothing_lost import WholeWay

EXAMPLES_AT_ONCE = 10
INFO = StreamInfo(rank=1)


class Part:
    """A kind of examples and what came of them."""

    def __init__(self, name: str, unit: str, run: Callable[[random.Random, Path], int]) -> None:
        self.name, self.unit, self._run = name, unit, run
        self.count = 0
        self.failure = ""

    def go_on(self, until_s: float, seed: int, folder: Path) -> None:
        """Until the time is up or something was found."""
        while time.monotonic() < until_s and not self.failure:
            seed += 1
            try:
                with tempfile.TemporaryDirectory(dir=folder) as own:
                    self.count += self._run(random.Random(seed), Path(own))
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                self.failure = f"seed {seed}\n{traceback.format_exc()}"


def whole_way(_chance: random.Random, folder: Path) -> int:
    """Writers, copies, senders, network and servers, moved by Hypothesis."""
    template = folder / "template.db"
    Store.open(f"sqlite:///{template}").close()
    WholeWay.templates = {"sqlite": template, "folder": folder}
    chosen = settings(
        max_examples=EXAMPLES_AT_ONCE,
        stateful_step_count=60,
        deadline=None,
        derandomize=False,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(WholeWay, settings=chosen)
    return EXAMPLES_AT_ONCE


def damaged_journal(chance: random.Random, folder: Path) -> int:
    """Whatever happens to the files: what comes out is what was written there, or a `Lost` that names it; and a writer
    that takes the journal up goes on behind it."""
    place = StreamPlace(directory=folder, run_id="run1", stream="ab")
    written = _write(place, chance, 0, 30)
    for first_seq in place.segments():
        path = place.segment(first_seq)
        data = bytearray(path.read_bytes())
        match chance.choice(["keep", "keep", "flip", "cut", "overwrite", "remove", "append"]):
            case "flip":
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            case "cut":
                del data[chance.randrange(len(data)) :]
            case "overwrite":
                at = chance.randrange(len(data))
                data[at : at + 40] = chance.randbytes(chance.randrange(1, 40))
            case "remove":
                path.unlink()
                continue
            case "append":
                data += chance.randbytes(chance.randrange(1, 60))
        path.write_bytes(data)
    _check(place, written)
    place.acks.write_bytes(chance.randbytes(chance.randrange(60)))
    read_acks(place.acks)
    more = _write(place, chance, 1000, 5)
    _check(place, {**written, **more})
    return 1


def _write(place: StreamPlace, chance: random.Random, first: int, count: int) -> dict[int, bytes]:
    """Gives seq to payload."""
    writer = JournalWriter(place, INFO, list, quota_bytes=1 << 30, segment_bytes=chance.randrange(150, 600))
    writer.open()
    written: dict[int, bytes] = {}
    for number in range(first, first + count):
        payload = encode(Event(kind="k", step=number, time_us=0, attributes={"text": "x" * chance.randrange(40)}))
        writer.append([payload])
        written[writer.next_seq - 1] = payload
    writer.close()
    return written


def _check(place: StreamPlace, written: dict[int, bytes]) -> None:
    reader = JournalReader(place)
    entries: list[Entry] = list(reader.read(final=True))
    reader.close()
    next_seq = 0
    for entry in entries:
        assert entry.seq == next_seq, f"seq {entry.seq} comes where {next_seq} is due"
        next_seq = entry.last_seq + 1
        if written.get(entry.seq) != entry.payload:
            lost = decode_record(entry.payload)
            assert isinstance(lost, Lost), f"seq {entry.seq} was not written so"
            assert (lost.first_seq, lost.last_seq) == (entry.seq, entry.last_seq)


def damaged_frames(chance: random.Random, folder: Path) -> int:
    """Bytes that are almost frames: taken whole, or refused; and nothing of an altered batch reaches the database."""
    store = Store.open(f"sqlite:///{folder / 'halfscope.db'}")
    try:
        sender = Stream()
        sender.welcomed(store.grant(sender.hello(), now_us=1))
        for number in range(40):
            before = sender.next, sender.digest
            batch = sender.batch(Event("test", number, 1, attributes={"text": "y" * chance.randrange(30)}))
            data = bytearray(encode(chance.choice([batch, batch, sender.hello()])))
            for _ in range(chance.randrange(1, 4)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            try:
                frame = ServerSession().receive(bytes(data))
            except SequenceError:
                frame = None
            if isinstance(frame, Batch) and frame != batch:
                result = store.commit([frame], now_us=2)
                known = (frame.digest, frame.first, frame.stream, frame.run_id)
                is_whole = known == (batch.digest, batch.first, batch.stream, batch.run_id)
                assert is_whole or not result.applied, "an altered batch was applied"
                if result.applied:
                    continue  # altered where nothing depends on it: what was stored is what was sent
            elif isinstance(frame, Hello):
                store.grant(frame, now_us=3)
                sender.welcomed(store.grant(sender.hello(), now_us=3))
                continue
            sender.next, sender.digest = before
    finally:
        store.close()
    return 40


PARTS = (
    ("fuzz.whole_way", "examples", whole_way),
    ("fuzz.damaged_journals", "journals", damaged_journal),
    ("fuzz.damaged_frames", "frames", damaged_frames),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="how long, all parts together")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parsed = parser.parse_args()
    parts = [Part(*part) for part in PARTS]
    with tempfile.TemporaryDirectory(prefix="halfscope-fuzz-") as folder:
        for part in parts:
            part.go_on(time.monotonic() + parsed.seconds / len(parts), parsed.seed, Path(folder))
            print(f"{part.name} {part.count} {part.unit}", flush=True)
    for part in parts:
        if part.failure:
            print(f"\n{part.name}: {part.failure}", file=sys.stderr)
    num_failed = sum(bool(part.failure) for part in parts)
    print(f"fuzz.seed {parsed.seed} -")
    print(f"fuzz.failures {num_failed} parts")
    return 1 if num_failed else 0


if __name__ == "__main__":
    keep()
    sys.exit(main())
