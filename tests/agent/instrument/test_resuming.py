"""A training that goes on in the run it began: a next attempt, and what it did not bring along is told."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import halfscope
import pytest
import torch
from halfscope.instrument import entry, ranks
from halfscope.record.layout import StreamPlace, find_streams
from halfscope.record.reader import JournalReader, read_info
from halfscope_server.query import Views, events_page
from halfscope_server.query.lines import read_line
from halfscope_server.query.window import Window
from halfscope_server.store.store import Store

from tests.helpers.recorded import read_journal
from tests.helpers.stream import Stream

Net = Callable[[], torch.nn.Sequential]

NOW_NS = 2_000_000_000 * 10**9


def train(model: Any, optimizer: Any, scaler: Any, num_steps: int) -> None:
    for _ in range(num_steps):
        optimizer.zero_grad()
        loss = model(torch.ones(2, 4)).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()


@pytest.fixture
def checkpoint(watching: Any, net: Net) -> tuple[halfscope.Run, dict[str, Any]]:
    """Twelve steps of a run whose scale doubles every fifth, and what it saved behind the tenth."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=5)
    run = watching(model, optimizer, scaler)
    train(model, optimizer, scaler, 10)
    saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
    train(model, optimizer, scaler, 2)
    run.finish()
    return run, saved


def resume(
    watching: Any, net: Net, run: Any, saved: dict[str, Any], loaded: Sequence[str], *, is_late: bool = False
) -> Any:
    """Goes on at step 10 with what was loaded, before or after `watch`; gives the second attempt's stream."""
    model = net()
    optimizer = torch.optim.Adam(model.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=5)
    parts = {"model": model, "optimizer": optimizer, "scaler": scaler}

    def load() -> None:
        for name in loaded:
            parts[name].load_state_dict(saved[name])

    if not is_late:
        load()
    watching(model, optimizer, scaler, resume=run, start_step=10)
    if is_late:
        load()
    train(model, optimizer, scaler, 3)
    (second,) = [one for one in watching.read_all() if one.start.start_step == 10]
    return second


@pytest.mark.parametrize("is_late", [False, True], ids=["loaded before watch", "loaded after watch"])
def test_a_training_with_all_its_states_is_the_next_attempt_and_nothing_is_said(
    watching: Any, net: Net, checkpoint: Any, is_late: bool
) -> None:
    """In the same run, beside the first attempt, which is kept."""
    run, saved = checkpoint
    second = resume(watching, net, run, saved, ["model", "optimizer", "scaler"], is_late=is_late)
    assert [event for event in second.events if event.kind == "resumed_without_state"] == []
    places = list(find_streams(watching.directory))
    assert {place.run_id for place in places} == {run.id}
    first, later = sorted(read_info(place).attempt for place in places)
    assert first == 0 < later


def test_an_optimizer_and_a_scaler_without_their_states_are_told(watching: Any, net: Net, checkpoint: Any) -> None:
    """By name, at the step where it went on, with the scale that there was and that there is."""
    run, saved = checkpoint
    second = resume(watching, net, run.id, saved, ["model"])
    told = [event for event in second.events if event.kind == "resumed_without_state"]
    assert {event.attributes["of"]: (event.step, list(event.where)) for event in told} == {
        "optimizer": (10, ["Adam"]),
        "scaler": (10, ["GradScaler"]),
    }
    (scaler,) = [event for event in told if event.attributes["of"] == "scaler"]
    assert (scaler.attributes["scale"], scaler.attributes["scale_before"]) == (4.0, 64.0)


def test_an_optimizer_that_keeps_no_state_is_no_news(watching: Any, net: Net) -> None:
    """Plain SGD has nothing that a checkpoint could bring."""
    runs = []
    for start_step in (0, 3):
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", enabled=False)
        runs.append(watching(model, optimizer, scaler, start_step=start_step, resume=runs[0] if runs else None))
        train(model, optimizer, scaler, 3)
        runs[-1].finish()
    for recorded in watching.read_all():
        assert "resumed_without_state" not in [event.kind for event in recorded.events]


def test_a_run_to_resume_has_to_be_one(tmp_path: Path, net: Net) -> None:
    """What is none, or another than `run_id` says, raises at once with what would be one."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(ValueError, match="resume is 'my run'; expected a run as watch returned it"):
        halfscope.watch(model, optimizer, resume="my run", directory=tmp_path)
    one, other = "01jabcdefghjkmnp", "01jabcdefghjkmnq"
    with pytest.raises(ValueError, match=f"resume is {one} and run_id is {other}"):
        halfscope.watch(model, optimizer, resume=one, run_id=other, directory=tmp_path)


def test_a_rank_goes_on_behind_its_own_attempts(watching: Any, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher that starts anew counts its restarts from nothing: what lies here says how many there were."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    run_id = "01jabcdefghjkmnp"
    for options in ({"run_id": run_id}, {"resume": run_id}, {"resume": run_id}):
        model = net()
        watching(model, torch.optim.SGD(model.parameters(), 0.1), **options).finish()
    infos = [read_info(place) for place in find_streams(watching.directory)]
    assert sorted(info.attempt for info in infos) == [0, 1, 2]


def test_a_training_resumed_elsewhere_is_a_later_attempt_in_whatever_order_its_parts_arrive(
    watching: Any, net: Net, tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three starts in one second, on two machines that know nothing of each other, all offline: every order of their
    journals gives the newest steps as the line, the older ones as ghosts, and an event of each restart."""
    parts: list[StreamPlace] = []
    starts = ((NOW_NS, "a", 0, 12), (NOW_NS + 1000, "b", 10, 6), (NOW_NS + 9**9, "a", 8, 5))
    for now_ns, machine, first, num_steps in starts:
        monkeypatch.setattr(entry, "time", SimpleNamespace(time_ns=lambda now_ns=now_ns: now_ns))
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        directory = tmp_path / machine
        known = set(find_streams(directory))
        resume = parts[0].run_id if parts else None
        run = watching(model, optimizer, None, start_step=first, directory=directory, resume=resume)
        for step in range(first, first + num_steps):
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()
            run.step(loss=100.0 * len(parts) + step)
        run.finish()
        parts += [place for place in find_streams(directory) if place not in known]
    began_us = min(recorded.start.time_us for recorded in read_journal(tmp_path / "a") if recorded.start)
    with contextlib.closing(Store.open(sqlite_url)) as store:
        assert_same_in_every_order(store, parts, began_us)


def assert_same_in_every_order(store: Store, parts: Sequence[StreamPlace], began_us: int) -> None:
    """A run each, of which the database is given the parts one after the other."""
    for number, order in enumerate(itertools.permutations(parts)):
        run_id = f"01jabcdefghjkmn{number}"
        for place in order:
            stream = Stream(run_id, place.stream, read_info(place))
            stream.welcomed(store.grant(stream.hello(), now_us=1))
            payloads = [bytes(entry.payload) for entry in JournalReader(place).read(final=True)]
            assert not store.commit([stream.batch_of(payloads)], now_us=1).refused
        view = Views(store).get(run_id)
        assert view is not None
        assert (view.row.num_attempts, view.row.created_us, view.row.state) == (3, began_us, "finished")
        line = read_line(view, view.named("loss")[0], Window())
        assert line is not None
        assert line.curve.value.tolist() == [*range(8), *range(208, 213)]
        ghosts = sorted(ghost.value.tolist() for ghost in line.ghosts)
        told = [(event.attempt, event.step) for event in events_page(view, kinds=["restarted", "joined"]).events]
        assert (ghosts, told) == ([[8, 9, 10, 11], [*range(110, 116)]], [(1, 10), (2, 8)])


def test_a_clock_that_was_set_back_makes_no_older_attempt(
    watching: Any, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the earlier attempts are known, the next one has a greater number, whatever the time."""
    run_id = "01jabcdefghjkmnp"
    for now_ns in (NOW_NS, NOW_NS - 3600 * 10**9, 0):
        monkeypatch.setattr(entry, "time", SimpleNamespace(time_ns=lambda now_ns=now_ns: now_ns))
        model = net()
        watching(model, torch.optim.SGD(model.parameters(), 0.1), run_id=run_id).finish()
    found = [read_info(place).attempt for place in find_streams(watching.directory)]
    first = ranks.attempt_at(NOW_NS // 1000)
    assert sorted(found) == [first, first + 1, first + 2]
