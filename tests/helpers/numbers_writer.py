"""A training without torch: records numbers at a pace, and notes apart from halfscope what it has given and when.

    python -m tests.helpers.numbers_writer JOURNALS RUN_ID NOTES NUM_STEPS

The notes are a mapped file, which a `kill -9` leaves as it was: how many steps were given, when another thread last ran
and how late it was at most (a machine that stalls stalls the journal's thread, too), and for each step its time and the
digest of all until it. Invariant: a step is noted only after it was given to the recorder.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import struct
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from halfscope.record.recorder import Recorder
from halfscope.wire.messages import End, Start, StreamInfo

MAX_STEPS = 20_000
STREAM = "ab12"
EVENT_EVERY = 7
_HEAD = struct.Struct("<qqq")
_STEP = struct.Struct("<q16s")
NOTES_BYTES = _HEAD.size + MAX_STEPS * _STEP.size
PACE_S = 0.001
TICK_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Notes:
    """What a writer has noted."""

    times_us: list[int]
    digests: list[bytes]
    stalled_us: int
    """By how much the machine was late, at most, in the last second before it was killed."""


def value_of(step: int) -> float:
    """What is recorded of a step: NaN and infinities among it."""
    return math.nan if step % 97 == 13 else math.inf if step % 97 == 14 else 1 / (step + 1)


def digest_of(before: bytes, step: int, value: float) -> bytes:
    """The digest one step further."""
    return hashlib.blake2b(before + struct.pack("<qd", step, value), digest_size=16).digest()


def digest_of_all(points: Iterable[tuple[int, float]]) -> bytes:
    """The digest of steps as they are elsewhere."""
    digest = bytes(16)
    for step, value in points:
        digest = digest_of(digest, step, value)
    return digest


def read_notes(path: Path, killed_us: int) -> Notes:
    """What was noted until a moment."""
    data = path.read_bytes()
    count, ticked_us, late_us = _HEAD.unpack_from(data)
    steps = [_STEP.unpack_from(data, _HEAD.size + at * _STEP.size) for at in range(count)]
    overdue_us = max(0, killed_us - ticked_us - int(TICK_S * 1e6))
    return Notes(
        times_us=[time_us for time_us, _ in steps],
        digests=[digest for _, digest in steps],
        stalled_us=max(late_us, overdue_us),
    )


def _tick(notes: mmap.mmap) -> None:
    """Note how late this thread is at most, forgetting by half each second."""
    late_us = 0.0
    while True:
        due_s = time.monotonic() + TICK_S
        time.sleep(TICK_S)
        late_us = max(late_us * 0.993, (time.monotonic() - due_s) * 1e6)
        notes[8:24] = struct.pack("<qq", time.time_ns() // 1000, int(late_us))


def main(directory: Path, run_id: str, path: Path, num_steps: int) -> None:
    with path.open("r+b") as file:
        notes = mmap.mmap(file.fileno(), NOTES_BYTES)
    notes[8:16] = struct.pack("<q", time.time_ns() // 1000)
    threading.Thread(target=_tick, args=(notes,), daemon=True).start()
    recorder = Recorder.open(
        directory=directory,
        run_id=run_id,
        stream=STREAM,
        info=StreamInfo(),
        start=Start(time_us=1, project="p", name=run_id),
        segment_bytes=20_000,
    )
    sid = recorder.declare("loss")
    digest = bytes(16)
    for step in range(num_steps):
        value = value_of(step)
        now_us = time.time_ns() // 1000
        recorder.row(step, now_us, [(sid, value)])
        if step % EVENT_EVERY == 0:
            recorder.event("test", step)
        digest = digest_of(digest, step, value)
        _STEP.pack_into(notes, _HEAD.size + step * _STEP.size, now_us, digest)
        notes[:8] = struct.pack("<q", step + 1)
        time.sleep(PACE_S)
    recorder.close(End(outcome="finished", step=num_steps, time_us=0))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
