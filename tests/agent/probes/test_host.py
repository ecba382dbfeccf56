"""The load that others put on the machine: what is counted as ours, and what cannot be told."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest
from halfscope.probes.host import OtherLoad, Used, used

needs_proc = pytest.mark.skipif(not Path("/proc/stat").exists(), reason="needs /proc")


class Machine:
    """A machine whose counters and clocks the test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.cost_s = 0.0
        self.spent_s = 0.0
        self.used: Used | None = Used(50.0, 5.0)
        self.num_asked = 0

    def read(self) -> Used | None:
        self.num_asked += 1
        self.spent_s += self.cost_s
        return self.used

    def load(self) -> OtherLoad:
        return OtherLoad(self.read, lambda: self.now_s, lambda: self.spent_s)


def test_load_is_what_the_machine_was_busy_with_less_our_own() -> None:
    """Over the time between two questions; the first has nothing to compare with."""
    machine = Machine()
    load = machine.load()
    assert load.cores() is None
    machine.now_s, machine.used = 102.0, Used(50.0 + 9.0, 5.0 + 4.0)
    assert load.cores() == pytest.approx((9.0 - 4.0) / 2.0)
    machine.now_s, machine.used = 104.0, Used(59.0 + 1.99, 9.0 + 2.0)
    assert load.cores() == 0.0  # the kernel rounds


def test_what_cannot_be_told_is_left_out() -> None:
    """A system without counters, counters that stand still, and again a first question after that."""
    machine = Machine()
    machine.used = None
    load = machine.load()
    assert load.cores() is None
    machine.now_s, machine.used = 101.0, Used(50.0, 5.0)
    assert load.cores() is None
    machine.now_s, machine.used = 102.0, Used(50.0, 6.0)
    assert load.cores() is None
    machine.now_s, machine.used = 103.0, Used(53.0, 7.0)
    assert load.cores() == pytest.approx(2.0)


def test_a_machine_that_takes_long_to_tell_is_asked_rarely() -> None:
    """A question of 4 ms is asked every four seconds, a quick one every half second at most."""
    machine = Machine()
    machine.cost_s = 0.004
    load = machine.load()
    for _ in range(100):
        load.cores()
        machine.now_s += 0.1
    assert machine.num_asked == 3
    machine.cost_s = 0.0
    machine.now_s += 4.0
    load.cores()
    for _ in range(4):
        machine.now_s += 0.1
        load.cores()
    assert machine.num_asked == 4


def spin(seconds: float) -> None:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


@needs_proc
def test_our_own_work_and_that_of_workers_is_ours() -> None:
    """Processor time of this process and of a living child of multiprocessing is in both counters alike."""
    ready = multiprocessing.get_context("fork").Event()
    stop = multiprocessing.get_context("fork").Event()

    def work() -> None:
        spin(0.3)
        ready.set()
        stop.wait()

    before = used()
    assert before is not None
    worker = multiprocessing.get_context("fork").Process(target=work)
    worker.start()
    try:
        spin(0.1)
        assert ready.wait(60)
        living = used()
    finally:
        stop.set()
        worker.join()
    ended = used()
    assert living is not None
    assert ended is not None
    assert living.own_s - before.own_s >= 0.4 - 0.03
    assert living.machine_s - before.machine_s >= 0.4 - 0.05
    assert ended.own_s >= living.own_s - 0.03, "a worker's time is kept when it has ended"


def test_siblings_of_a_rank_are_no_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several ranks on one machine are one training: nothing is said of others then."""
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert used() is None
