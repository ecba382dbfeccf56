"""The parts of `make bench-peers` that need none of the tools: turns, what they are held against, what comes of it."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.bench import peers, peers_inside, peers_spikes, workloads
from tests.bench.peers_inside import UNWATCHED, Arm, Course, Turn, against_neighbours, sequence


class Counting(Arm):
    """Does nothing but keep the order of what is asked of it."""

    said: list[Any]

    def __init__(self, work: workloads.Workload, folder: Path) -> None:
        super().__init__(work, folder)
        self.said = []

    def on(self) -> None:
        self.said.append("on")

    def update(self, step: int) -> None:
        self.said.append(step)
        self.work.update()

    def off(self) -> None:
        self.said.append("off")


class Broken(Counting):
    def update(self, step: int) -> None:
        raise RuntimeError("cannot bear this model\nat all")


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> workloads.Workload:
    """A parameter; turns of at most a few steps."""
    monkeypatch.setattr(peers_inside, "SETTLE_S", 0.0)
    monkeypatch.setattr(peers_inside, "TURN_S", 1e-4)
    weight = torch.nn.Linear(1, 1)
    return workloads._workload(weight, lambda: weight(torch.ones(1, 1)).sum(), samples=1)


def test_a_tool_watches_the_steps_of_its_turns_and_no_others(work: workloads.Workload, tmp_path: Path) -> None:
    """It is on before its first step and off behind its last; a tool that fails is left out, with what it said."""

    class InTens(Counting):
        every = 10

    course = Course(work=work)
    course.begin(tmp_path, {"one": Counting, "broken": Broken, "tens": InTens})
    assert course.failed == {"broken": "RuntimeError: cannot bear this model"}
    turns = [course.round(number) for number in range(2)]
    assert [name for name, _ in turns[0]] == [UNWATCHED, "one", "tens", UNWATCHED]
    assert turns[1] != turns[0]
    assert [name for name, _ in turns[1]] == [UNWATCHED, "tens", "one", UNWATCHED]
    assert course.num_steps["tens"] % 10 == 0
    steps: list[int] = []
    for arm in course.arms.values():
        assert isinstance(arm, Counting)
        marks = [each for each in arm.said if isinstance(each, str)]
        assert marks == ["on", "off"] * 3
        assert (arm.said[0], arm.said[-1]) == ("on", "off")
        steps += [each for each in arm.said if isinstance(each, int)]
    assert sorted(steps) == list(range(len(steps)))


def test_turns_are_held_against_the_unwatched_ones_around_them() -> None:
    """Drift that is even over a round leaves no trace in the ratios."""
    names = ["a", "b", "c", "d", "e"]
    order = sequence(names)
    assert order == [UNWATCHED, "a", "b", UNWATCHED, "c", "d", UNWATCHED, "e", UNWATCHED]
    turns = [(name, Turn(wall_s=10.0 + at, cpu_s=20.0 + at)) for at, name in enumerate(order)]
    found = list(against_neighbours(turns))
    assert [name for name, _, _ in found] == names
    means = [base.wall_s for _, _, base in found]
    assert means == [11.5, 11.5, 14.5, 14.5, 17.0]
    assert [turn.wall_s for _, turn, _ in found] == [11.0, 12.0, 14.0, 15.0, 17.0]
    assert all(base.cpu_s == base.wall_s + 10.0 for _, _, base in found)


def test_what_looks_at_some_steps_alone_is_put_together_from_both_kinds() -> None:
    """By hand: an idle step of 1.02, a traced one of 3.02, every hundredth: 1.04. Cheapest first, parts left out."""
    found = {
        "step_s": 0.1,
        "failed": {"wandb": "ImportError: no"},
        "shares": {
            "nanny_traced": [[2.02, 2.02]] * 3,
            "nanny_idle": [[0.02, 0.03]] * 3,
            "halfscope_sketched": [[0.055, 0.055]] * 3,
            "halfscope_unsketched": [[0.005, 0.005]] * 3,
            "tensorboard": [[0.01, 0.01], [0.03, 0.02], [0.05, 0.09]],
        },
    }
    rows = {row.name: row for row in peers.rows_of(found)}
    assert list(rows) == ["halfscope", "tensorboard", "nanny", "halfscope_every_step", "nanny_every_step"]
    assert rows["nanny"].ratio == pytest.approx(1.04)
    assert rows["nanny"].extra_us == pytest.approx(0.04 * 0.1 * 1e6)
    every = peers.sketch_every(found)
    assert 0.05 / every <= 0.005 * 1.1
    assert rows["halfscope"].ratio == pytest.approx(1.005 + 0.05 / every)
    assert rows["tensorboard"].ratio == pytest.approx(1.03)
    assert rows["tensorboard"].ratio_error == pytest.approx(1.2533 * 1.4826 * 0.02 / math.sqrt(3))
    lines = {line.name: line.value for line in peers.measurements("gpt", found, list(rows.values()))}
    assert lines["peers.gpt.tensorboard.cpu_ratio"] == pytest.approx(1.02)
    assert lines["peers.gpt.unwatched.step_ms"] == pytest.approx(100.0)
    assert peers.table("gpt", found, list(rows.values()))[-1].endswith("not measured: ImportError: no")


def test_tools_write_below_their_folder_and_reach_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that they get names no place and no account of the user's."""
    monkeypatch.setenv("WANDB_API_KEY", "secret")
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("HALFSCOPE_TOKEN", "secret")
    found = peers.quiet(Path("/folder"))
    assert "secret" not in found.values()
    assert {found["HOME"], found["TMPDIR"], found["TRACKIO_DIR"]} == {"/folder", "/folder/trackio-home"}
    with pytest.raises(ConnectionRefusedError, match=r"192\.0\.2\.1"):
        peers_inside._stay_here("socket.connect", (None, ("192.0.2.1", 443)))
    peers_inside._stay_here("socket.connect", (None, ("127.0.0.1", 443)))
    peers_inside._stay_here("socket.connect", (None, "/a/socket"))


def test_spikes_and_bursts_are_counted_where_they_are_seen() -> None:
    """Three spikes and two bursts, of which a chart's band and a reader's points each miss some."""
    value = np.zeros(100)
    value[[10, 50, 90]] = 5.0, -5.0, 7.0
    value[20:23] = value[60:61] = np.nan
    planted: Any = SimpleNamespace(
        value=value, spikes=np.array([10, 50, 90]), bursts=np.array([20, 60]), lengths=np.array([3, 1])
    )
    both = peers_spikes.planted_in(planted, 0, 99)
    assert both == peers_spikes.Seen(spikes=3, bursts=2)
    assert peers_spikes.planted_in(planted, 11, 21) == peers_spikes.Seen()
    assert peers_spikes.kept_in(np.array([10, 22, 59]), planted, 0, 99) == peers_spikes.Seen(spikes=1, bursts=1)
    band = SimpleNamespace(step=np.array([0, 50]), high=np.array([5.0, 6.0]), low=np.array([0.0, -5.0]))
    bad = SimpleNamespace(step=np.array([20, 60]), last_step=np.array([22, 60]), num_nan=np.array([3, 0]))
    line = SimpleNamespace(band=band, bucket_steps=50, bad=bad)
    assert peers_spikes.seen_in(line, planted, 0, 99) == peers_spikes.Seen(spikes=2, bursts=1)
    curve = SimpleNamespace(step=np.array([10, 50, 90]), value=np.array([5.0, 0.0, 7.0]))
    drawn = SimpleNamespace(band=None, curve=curve, bad=bad)
    assert peers_spikes.seen_in(drawn, planted, 0, 99) == peers_spikes.Seen(spikes=2, bursts=1)


def test_zooms_are_ever_narrower_and_lie_within_the_run() -> None:
    """From half of it down to a thousand steps, at most eight of a width, from its first step to its last."""
    found = peers_spikes.zooms(1_000_000)
    widths = [last - first + 1 for first, last in found]
    assert widths == sorted(widths, reverse=True)
    assert (widths[0], widths[-1]) == (500_000, 1_000_000 // 2**9)
    assert all(first >= 0 and last < 1_000_000 for first, last in found)
    assert max(widths.count(width) for width in set(widths)) == 8
    assert {0, 500_000} <= {first for first, _ in found}
