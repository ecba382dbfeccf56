"""What is new behind a reader's cursors, out of commits and read back, against all that was written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from halfscope.wire.messages import Bye, End, Event, Lost, Points
from halfscope.wire.messages import Column as WireColumn
from halfscope_server.store import compactor
from halfscope_server.store.store import Store
from halfscope_server.store.types import Applied
from halfscope_server.store.update_types import StreamCursor, Update, Wanted
from halfscope_server.store.updates import of_commits

from tests.helpers.sketches import Cell

Make = Callable[..., Any]

WANTED = Wanted(
    series=frozenset({"loss", "scale", "rare"}),
    events=frozenset({"skip", "lost", "run_ended", "lost_contact", "stall"}),
)


def by_series(updates: Sequence[Update]) -> dict[str, list[tuple[int, int, float]]]:
    """(step, time, value) of each series in the order given; NaN as a word, so that it equals itself."""
    found: dict[str, list[tuple[int, int, float]]] = {}
    for update in updates:
        for column in update.columns:
            rows = zip(column.step.tolist(), column.time_us.tolist(), column.value.view("<i8").tolist(), strict=True)
            found.setdefault(column.series.name, []).extend(rows)
    return found


def event_places(updates: Sequence[Update]) -> list[tuple[str, str, int]]:
    return sorted((event.stream, event.kind, event.seq) for update in updates for event in update.events)


class Reader:
    """Goes on from its cursors: out of commits, or from the store."""

    def __init__(self, store: Store, run_id: str) -> None:
        self.store, self.run_id = store, run_id
        self.cursors: dict[str, StreamCursor] = {}
        self.updates: list[Update] = []

    def take(self, applied: Applied, wanted: Wanted = WANTED) -> None:
        assert applied.brought is not None
        cursor = self.cursors.get(applied.stream, StreamCursor())
        assert applied.brought.first == cursor.next
        series = {row.series_id: row for row in self.store.series(self.run_id)}
        update, self.cursors[applied.stream] = of_commits([applied.brought], cursor, wanted, series)
        self.updates.append(update)

    def read(self, wanted: Wanted = WANTED) -> int:
        num_reads = 0
        while True:
            num_reads += 1
            found = self.store.alerts.updates_since(self.run_id, self.cursors, wanted)
            for update, cursor in found.steps:
                self.updates.append(update)
                self.cursors[update.stream] = cursor
            if not found.is_behind:
                return num_reads


def record(steps: Sequence[int], values: Mapping[int, Any], rows: Mapping[int, Sequence[int]] | None = None) -> Points:
    """Points with a series on some rows only."""
    step = np.asarray(steps, "<i8")
    columns = []
    for sid, value in values.items():
        chosen = (rows or {}).get(sid)
        columns.append(
            WireColumn(
                sid,
                np.asarray(value, "<f8").tobytes(),
                b"" if chosen is None else np.asarray(chosen, "<u4").tobytes(),
            )
        )
    return Points(step.tobytes(), (1000 * step).tobytes(), columns)


@pytest.mark.parametrize("seed", range(4))
def test_every_value_comes_once_and_in_order_however_it_is_read(
    store: Store, begun: Make, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Commits taken one by one, readers that begin anywhere, compaction in between: the same values as were sent."""
    monkeypatch.setattr(compactor, "SEAL_STEPS", 16)
    rng = np.random.default_rng(seed)
    sender = begun(["loss", "scale", "rare", "other"])
    live, late, mixed = (Reader(store, sender.run_id) for _ in range(3))
    live.read()
    sent: dict[str, list[tuple[int, int, float]]] = {"loss": [], "scale": [], "rare": []}
    step = 0
    for _ in range(30):
        steps = list(range(step, step + int(rng.integers(1, 9))))
        step = steps[-1] + 1
        loss = rng.choice([1.0, np.nan, np.inf, -0.0, rng.normal()], len(steps))
        rare = [row for row, at in enumerate(steps) if at % 7 == 0]
        values = {0: loss, 1: [2.0] * len(steps), 2: [float(steps[row]) for row in rare], 3: [0.0] * len(steps)}
        if not rare:
            del values[2]
        batch = sender.batch(record(steps, values, {2: rare}), Event("skip", steps[0], 1))
        for name, own in (("loss", steps), ("scale", steps), ("rare", [steps[row] for row in rare])):
            sid = {"loss": 0, "scale": 1, "rare": 2}[name]
            bits = np.asarray(values.get(sid, []), "<f8").view("<i8").tolist()
            sent[name] += list(zip(own, [1000 * at for at in own], bits, strict=True))
        (applied,) = store.commit([batch], now_us=int(step)).applied
        live.take(applied)
        choice = rng.integers(5)
        if choice == 0:
            store.compact(now_us=10**15, budget_s=60)
        elif choice == 1:
            mixed.read()
    for reader in (late, mixed):
        reader.read()
    assert by_series(live.updates) == by_series(late.updates) == by_series(mixed.updates) == sent
    assert event_places(live.updates) == event_places(late.updates) == event_places(mixed.updates)
    assert len(event_places(live.updates)) == 30


def test_a_reader_far_behind_reads_a_few_chunks_at_once(
    store: Store, begun: Make, make_points: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that memory stays bounded; a stream is not said to have ended before all of it was read."""
    monkeypatch.setattr(compactor, "SEAL_STEPS", 8)
    sender = begun()
    for first in range(0, 200, 8):
        store.commit([sender.batch(make_points(range(first, first + 8), {0: np.arange(first, first + 8)}))], now_us=1)
        store.compact(now_us=10**15, budget_s=60)
    store.commit([sender.batch(End("finished", 199, 5))], now_us=2)
    reader = Reader(store, sender.run_id)
    assert reader.read() > 4
    assert [int(value[0]) for value in by_series(reader.updates)["loss"]] == list(range(200))
    assert [update.ended for update in reader.updates[-2:]] == ["", "finished"]


def test_a_value_that_came_late_is_not_missed_behind_a_merge(store: Store, begun: Make, make_points: Make) -> None:
    """A series that lags behind the others is read from where it is itself."""
    sender = begun(["loss", "scale"])
    store.commit([sender.batch(make_points([1, 2, 3], {0: [1, 2, 3]}), make_points([1], {1: [10]}))], now_us=1)
    reader = Reader(store, sender.run_id)
    reader.read()
    store.commit([sender.batch(make_points([2, 3], {1: [20, 30]}))], now_us=2)
    store.compact(now_us=10**15, budget_s=60)
    reader.read()
    assert [row[0] for row in by_series(reader.updates)["scale"]] == [1, 2, 3]
    assert [row[0] for row in by_series(reader.updates)["loss"]] == [1, 2, 3]


def test_how_streams_end_is_told_with_their_last_values(store: Store, begun: Make, make_points: Make) -> None:
    """By their own word, by the server's clock, by their sender; and that they came back."""
    ends, silent, killed = (begun(run_id="r", stream=name * 16, rank=rank) for rank, name in enumerate("abc"))
    reader = Reader(store, "r")
    reader.read()
    (applied,) = store.commit([ends.batch(make_points([1], {0: [1]}), End("exception", 1, 77))], now_us=100).applied
    reader.take(applied)
    assert (reader.updates[-1].ended, reader.updates[-1].end_us) == ("exception", 77)
    assert [event.kind for event in reader.updates[-1].events] == ["run_ended"]
    store.commit([killed.batch(make_points([1], {0: [1]}))], now_us=100)
    store.bye(Bye(killed.run_id, killed.stream, "killed", 99), now_us=101)
    store.mark_lost_contact(silent_since_us=50, now_us=102)
    reader.read()
    told = {update.stream: (update.ended, update.end_us) for update in reader.updates}
    assert told[ends.stream] == ("exception", 77)
    assert told[silent.stream] == ("lost_contact", 2)
    assert told[killed.stream] == ("killed", 99)
    server = reader.updates[-1]
    assert [(event.kind, event.attributes["stream"]) for event in server.events] == [
        ("run_ended", killed.stream),
        ("lost_contact", silent.stream),
    ]
    again, hint = store.commit([silent.batch(make_points([2], {0: [1]}))], now_us=103).applied
    reader.take(again)
    assert reader.updates[-1].ended == ""
    assert (hint.stream, hint.brought) == ("~server", None)


def test_lost_records_and_what_the_clock_decided_are_events_too(store: Store, begun: Make, make_points: Make) -> None:
    """A gap moves the cursor behind it; the server's word stands at the newest step of the newest attempt."""
    sender = begun()
    store.commit([sender.batch(make_points([4], {0: [1]}))], now_us=3)
    first = sender.next
    (applied,) = store.commit([sender.batch(Lost(first, first + 9, "quota", 5), count=10)], now_us=4).applied
    live, late = Reader(store, sender.run_id), Reader(store, sender.run_id)
    live.cursors = {sender.stream: StreamCursor(next=first)}
    live.take(applied)
    assert store.alerts.write_server_event(sender.run_id, "stall", "warning", {"silent_s": 60.0}, now_us=9)
    assert not store.alerts.write_server_event("nobody", "stall", "warning", {}, now_us=9)
    live.read()
    late.read()
    assert (
        event_places(live.updates)
        == event_places(late.updates)
        == [
            (sender.stream, "lost", first),
            ("~server", "stall", 0),
        ]
    )
    assert live.cursors[sender.stream].next == late.cursors[sender.stream].next == first + 10
    stall = live.updates[-1].events[0]
    assert (stall.step, stall.time_us, stall.attributes["silent_s"], stall.rank) == (4, 9, 60.0, 0)


def test_sketched_steps_come_once_with_the_names_of_their_layers(
    store: Store, begun: Make, make_layers: Make, make_sketches: Make
) -> None:
    """Whether they lie in segments or in tiles."""
    wanted = Wanted(frames=True)
    sender = begun()
    reader = Reader(store, sender.run_id)
    for step in (10, 20):
        store.commit(
            [sender.batch(make_layers("head.weight"), make_sketches(step, {0: Cell.of([1.0, 0.0])}))], now_us=3
        )
        reader.read(wanted)
    store.commit([sender.batch(make_sketches(30, {0: Cell.of([2.0])}))], now_us=3)
    store.compact(now_us=10**15, budget_s=60)
    reader.read(wanted)
    late = Reader(store, sender.run_id)
    late.read(wanted)
    for one in (reader, late):
        frames = [update.frames for update in one.updates if update.frames is not None]
        assert [step for found in frames for step in found.step.tolist()] == [10, 20, 30]
        assert {tuple(update.layer_names) for update in one.updates if update.frames is not None} == {("head.weight",)}


def test_pulses_of_runs_that_are_not_over(store: Store, begun: Make, make_points: Make) -> None:
    """With every stream's cursor; a finished run only where it is asked for, or evaluation has not seen its end."""
    live, over = begun(run_id="live"), begun(run_id="over")
    store.commit([live.batch(make_points([4], {0: [1]}))], now_us=100)
    store.alerts.save_evaluation("over", state=b"x", is_done=True, now_us=200)
    store.commit([over.batch(make_points([5], {0: [1]}), End("finished", 5, 9))], now_us=200)
    store.mark_lost_contact(silent_since_us=101, now_us=300)
    (pulse,) = store.alerts.pulses().values()
    assert (pulse.run_id, pulse.state, pulse.last_step, pulse.updated_us, pulse.seen_us) == (
        "live",
        "lost",
        4,
        100,
        100,
    )
    assert (pulse.next, pulse.ended[live.stream]) == ({live.stream: live.next, "~server": 1}, "lost_contact")
    assert store.alerts.pulses(["over", "nobody"])["over"].is_over
    assert store.alerts.unfinished() == set()
    store.alerts.save_evaluation("over", state=b"x", version=1, now_us=300)
    assert store.alerts.unfinished() == {"over"}
    store.alerts.save_evaluation("over", state=b"x", version=2, is_done=True, now_us=301)
    assert store.alerts.unfinished() == set()
    store.commit([over.batch(make_points([6], {0: [1]}))], now_us=400)
    assert store.alerts.unfinished() == {"over"}
    never = begun(run_id="never")
    store.commit([never.batch(End("finished", 5, 9))], now_us=200)
    assert store.alerts.unfinished() == {"over"}
    store.alerts.put_rule("high", {}, now_us=1_000)
    assert store.alerts.unfinished() == {"over", "never"}
