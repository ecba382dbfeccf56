"""`kill -9` of writers, senders and servers at random instants: every record that was older than 100 ms at the kill is
in the database, exactly once."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.helpers.chaos import WAYS, ChaosProxy
from tests.helpers.killing import PROMISED_US, Scene, kill_at_random, losses, wait_until
from tests.helpers.numbers_writer import MAX_STEPS
from tests.helpers.ports import free_port
from tests.helpers.preloaded import Preloaded

NUM_KILLS = int(os.environ.get("HALFSCOPE_TEST_KILLS", "20"))
"""Of each kind (`make soak`: 500)."""
SEED = int(os.environ.get("HALFSCOPE_TEST_SEED", "7"))


def assert_promise_kept(lost: Sequence[tuple[int, int]]) -> None:
    """Of a machine that is busy with other things the journal's thread may run late: by as much as another's did."""
    late = [(age_us, stalled_us) for age_us, stalled_us in lost if age_us > PROMISED_US + stalled_us]
    assert late == [], (late, sorted(age_us for age_us, _ in lost))


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * NUM_KILLS)
def test_what_is_killed_costs_no_record_older_than_a_tenth_of_a_second(
    tmp_path: Path, sqlite_url: str, forks: Preloaded
) -> None:
    """One server on SQLite; digests of writers and of the database are equal."""
    port = free_port()
    scene = Scene(forks, tmp_path, sqlite_url, [port], f"http://127.0.0.1:{port}")
    try:
        kill_at_random(scene, SEED, NUM_KILLS)
    finally:
        scene.stop()
    assert scene.num_killed_senders == scene.num_killed_servers == NUM_KILLS
    assert_promise_kept(losses(scene))


@pytest.mark.slow
@pytest.mark.timeout(60 + 20 * NUM_KILLS)
def test_a_bad_network_and_two_servers_that_are_killed_cost_nothing(
    tmp_path: Path, postgres_url: str, forks: Preloaded
) -> None:
    """Both on one PostgreSQL, behind a proxy that delays, slices, resets, falls silent and sends everything again;
    nobody who records is killed, so nothing at all may be missing."""
    ports = [free_port(), free_port()]
    proxy = ChaosProxy(ports, SEED)
    scene = Scene(forks, tmp_path, postgres_url, ports, f"http://127.0.0.1:{proxy.port}")
    chance = random.Random(SEED)
    try:
        for port in ports:
            scene.start_server(port)
        scene.start_sender()
        writers = [scene.start_writer(min(50 * NUM_KILLS, MAX_STEPS - 1)) for _ in range(3)]
        for _ in range(NUM_KILLS // 5):
            time.sleep(chance.uniform(0.2, 0.6))  # the moment of death, not a wait for something
            port = chance.choice(ports)
            scene.kill_server(port)
            scene.start_server(port)
        wait_until(lambda: all(writer.process.poll() is not None for writer in writers), "writers do not end")
        wait_until(lambda: len(proxy.num_connections) == len(WAYS), f"not in every way: {proxy.num_connections}")
        proxy.is_calm = True
        scene.wait_until_shipped()
    finally:
        scene.stop()
        proxy.close()
    for writer in writers:
        writer.killed_us = time.time_ns() // 1000
    assert [age_us for age_us, _ in losses(scene)] == [0, 0, 0]
