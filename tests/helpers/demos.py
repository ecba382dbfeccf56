"""The demo's own trainings, recorded by its own loop, and sent to a server again as they were.

Invariant: what is replayed is what the agent wrote, but for the run's name and for its clock: a replay begins now.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from halfscope.record.layout import find_streams
from halfscope.record.reader import JournalReader
from halfscope.wire.codec import decode_record, encode
from halfscope.wire.messages import AgentFrame, Declare, Points, Record, ServerFrame, Start

from tests.helpers.once import made_once
from tests.helpers.preloaded import Preloaded
from tests.helpers.stream import Stream

TROUBLED = "fp16-troubled"
TROUBLED_STEPS = 270
"""Of its usual 3,000: the odd shard begins at step 108 and ends at 187, as many steps as it always has."""

_TRAIN = f"""
import torch
from halfscope.demo import train, trainings

torch.set_num_threads(1)
train.NUM_REPORTS = 20  # each measures the held-out images: as often as usual, that is a third of the whole
for _ in train.train(trainings.find("{TROUBLED}"), num_steps={TROUBLED_STEPS}):
    pass
"""


def record_troubled(folder: Path, python: Callable[[], Preloaded]) -> list[bytes]:
    """The records of the demo's troubled run, cut short; trained where nobody has yet.

    Args:
        folder: of recordings, shared by all processes of a session.
        python: asked for only by who trains.
    """

    def train(home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HALFSCOPE_")}
        environment = {**kept, "HALFSCOPE_MODE": "offline", "HALFSCOPE_HOME": str(home)}
        done = python().run(["-c", _TRAIN], env=environment, cwd=folder)
        assert done.returncode == 0, done.stderr

    home = made_once(folder, f"demo-{TROUBLED}-{TROUBLED_STEPS}", train)
    (place,) = find_streams(home / "journals")
    reader = JournalReader(place)
    try:
        return [bytes(entry.payload) for entry in reader.read(final=True)]
    finally:
        reader.close()


def series(records: Sequence[Record], name: str) -> dict[int, float]:
    """Step to value of a recorded series."""
    (sid,) = {each.sid for record in records if type(record) is Declare for each in record.series if each.name == name}
    found: dict[int, float] = {}
    for record in records:
        if type(record) is Points:
            steps = np.frombuffer(record.steps, "<i8")
            for column in record.columns:
                if column.sid == sid:
                    rows = np.frombuffer(column.rows, "<u4") if column.rows else np.arange(steps.size)
                    found |= dict(zip(steps[rows].tolist(), np.frombuffer(column.values, "<f8").tolist(), strict=True))
    return found


class Replay:
    """One recorded stream, sent part by part as another run's."""

    def __init__(
        self, run_id: str, name: str, payloads: Sequence[bytes], exchange: Callable[[AgentFrame], list[ServerFrame]]
    ) -> None:
        """
        Args:
            exchange: sends a frame, gives the answers.
        """
        records = [decode_record(payload) for payload in payloads]
        # Rules judge runs that began after them from their beginning, others from where they are.
        later_us = time.time_ns() // 1000 - next(record.time_us for record in records if type(record) is Start)
        self._left = [encode(_moved(record, name, later_us)) for record in records]
        self._exchange = exchange
        self._stream = Stream(run_id)
        self._stream.welcomed(*exchange(self._stream.hello()))

    def go_on(self, until_step: int | None = None) -> int:
        """Sends all records up to the first whose rows reach this step; None: the rest. Gives the last step sent."""
        count, last = 0, -1
        while count < len(self._left) and (until_step is None or last < until_step):
            record = decode_record(self._left[count])
            if type(record) is Points:
                last = int(np.frombuffer(record.steps, "<i8")[-1])
            count += 1
        part, self._left = self._left[:count], self._left[count:]
        batch = self._stream.batch_of(part)
        (ack,) = self._exchange(batch)
        assert getattr(ack, "next", None) == self._stream.next, ack
        return last


def _moved(record: Record, name: str, later_us: int) -> Record:
    changes: dict[str, Any] = {"name": name} if type(record) is Start else {}
    if type(record) is Points:
        changes["times_us"] = (np.frombuffer(record.times_us, "<i8") + later_us).astype("<i8").tobytes()
    elif hasattr(record, "time_us"):
        changes["time_us"] = record.time_us + later_us
    return msgspec.structs.replace(record, **changes)
