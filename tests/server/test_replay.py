"""A backlog is worked off many times faster than it was recorded, and holds up nobody who is live."""

from __future__ import annotations

import time
from array import array
from pathlib import Path

import pytest
from halfscope.record.acks import read_acks
from halfscope.record.journal import JournalWriter
from halfscope.record.layout import StreamPlace
from halfscope.record.ring import to_points
from halfscope.wire.codec import encode
from halfscope.wire.messages import Declare, End, Series, Start, StreamInfo
from halfscope_server.store.store import Store

from tests.helpers.killing import Scene, wait_until
from tests.helpers.numbers_writer import STREAM
from tests.helpers.ports import free_port
from tests.helpers.preloaded import Preloaded

RUN = "backlog000000000"
STEPS_PER_S, NUM_SERIES, NUM_S = 50, 10, 600
"""Of the training that nobody heard."""
LEAST_RATIO = 20.0
MAX_SILENCE_S = 5.0
"""Between two acknowledgements of the live stream. What is on its way of the backlog, 2 MiB at most, comes before it:
half a second, and some more on a machine that is busy with other things."""


def record_backlog(directory: Path) -> StreamPlace:
    """Ten minutes of a training as its recorder writes them, a record every tenth of a second."""
    place = StreamPlace(directory=directory, run_id=RUN, stream=STREAM)
    declared = Declare(series=[Series(sid=sid, name=f"series.{sid}") for sid in range(NUM_SERIES)])
    heads = [encode(Start(time_us=1, project="p", name=RUN)), encode(declared)]
    writer = JournalWriter(place, StreamInfo(), lambda: heads, quota_bytes=1 << 30)
    writer.open()
    at_once = 5
    for first in range(0, STEPS_PER_S * NUM_S, at_once):
        rows = [
            (step, step * 1_000_000 // STEPS_PER_S, [(sid, step + sid / 100) for sid in range(NUM_SERIES)])
            for step in range(first, first + at_once)
        ]
        writer.append([encode(to_points(rows))])
    writer.append([encode(End(outcome="finished", step=STEPS_PER_S * NUM_S, time_us=0))])
    writer.close()
    return place


@pytest.mark.slow
def test_a_backlog_is_replayed_at_twenty_times_its_pace_beside_a_live_run(
    tmp_path: Path, sqlite_url: str, forks: Preloaded
) -> None:
    """One sender for both: the live run's records are acknowledged all along, and all of the backlog is there."""
    port = free_port()
    scene = Scene(forks, tmp_path, sqlite_url, [port], f"http://127.0.0.1:{port}")
    place = record_backlog(scene.journals)
    try:
        scene.start_server(port)
        live = scene.start_writer()
        live_place = StreamPlace(directory=scene.journals, run_id=live.run_id, stream=STREAM)
        began_s = heard_s = time.monotonic()
        acked, silences_s = 0, array("d")
        scene.start_sender()

        def is_over() -> bool:
            nonlocal acked, heard_s
            now_s, now_acked = time.monotonic(), read_acks(live_place.acks).journal_next
            if now_acked > acked:
                silences_s.append(now_s - heard_s)
                acked, heard_s = now_acked, now_s
            return any(ack.ended for ack in read_acks(place.acks).servers.values())

        wait_until(is_over, "the backlog is not replayed")
        took_s = time.monotonic() - began_s
    finally:
        scene.stop()
    assert took_s * LEAST_RATIO <= NUM_S, f"{NUM_S / took_s:.1f} times its pace"
    silences_s.append(began_s + took_s - heard_s)
    assert max(silences_s) <= MAX_SILENCE_S, "the live run waited for the backlog"
    store = Store.open(sqlite_url)
    try:
        for series in store.series(RUN):
            found = store.points(RUN, series.series_id)
            offset = int(series.name.partition(".")[2]) / 100
            assert found.step.tolist() == list(range(STEPS_PER_S * NUM_S))
            assert (found.value == found.step + offset).all()
    finally:
        store.close()
