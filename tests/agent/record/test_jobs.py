"""The id that ranks of one node leave each other, as long as whoever launched them is there."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from halfscope import config
from halfscope.record import jobs
from halfscope.record.jobs import Launcher


@pytest.fixture
def launcher() -> Launcher:
    """This process."""
    return jobs.launcher_of(os.getpid())


def files(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


def test_who_comes_first_leaves_the_id_and_nobody_sees_half_of_it(tmp_path: Path, launcher: Launcher) -> None:
    """Many at once read one and the same id; none finds an empty file, and one file is left."""
    found: list[str | None] = []
    gate = threading.Barrier(16)

    def come() -> None:
        gate.wait()
        found.append(jobs.left_id(tmp_path / "journals", launcher, 0, config.new_run_id()))

    threads = [threading.Thread(target=come) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 16
    assert len(set(found)) == 1
    assert config.is_run_id(str(found[0]))
    assert files(tmp_path / "journals") == [f".job-{launcher.name}-0"]


def test_an_id_stays_while_the_launcher_is_there_and_goes_with_it(tmp_path: Path, launcher: Launcher) -> None:
    """Of a process that ran and has ended, of one whose number has gone to another, and of an earlier start of the
    machine; not of one that runs, of another host, or of another container."""
    child = subprocess.Popen([sys.executable, "-IS", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        launched = jobs.launcher_of(child.pid)
        first = jobs.left_id(tmp_path, launched, 0, config.new_run_id())
        assert jobs.left_id(tmp_path, launched, 0, config.new_run_id()) == first
        assert jobs.left_id(tmp_path, launched, 1, config.new_run_id()) != first
    finally:
        child.communicate(b"\n")
    kept = [
        launcher,
        dataclasses.replace(launcher, host="another"),
        dataclasses.replace(launcher, space=launcher.space + 1),
    ]
    ended = [dataclasses.replace(launcher, started="1"), dataclasses.replace(launcher, boot="another")]
    for one in (*kept, *ended):
        (tmp_path / f".job-{one.name}-0").write_text(f"{config.new_run_id()} {one.words}")
    (tmp_path / ".job-what").write_text("of another version")
    assert jobs.remove_ended(tmp_path) == 4
    assert files(tmp_path) == sorted([".job-what", *(f".job-{one.name}-0" for one in kept)])


def test_the_next_job_clears_away_what_the_last_one_left(tmp_path: Path, launcher: Launcher) -> None:
    """Nothing piles up where no sender runs."""
    gone = dataclasses.replace(launcher, started="1")
    for number in range(3):
        (tmp_path / f".job-{gone.name}-{number}").write_text(f"{config.new_run_id()} {gone.words}")
    jobs.left_id(tmp_path, launcher, 0, config.new_run_id())
    assert files(tmp_path) == [f".job-{launcher.name}-0"]


def test_a_folder_that_cannot_be_written_gives_no_id(tmp_path: Path, launcher: Launcher) -> None:
    """And nothing raises."""
    (tmp_path / "file").write_text("")
    assert jobs.left_id(tmp_path / "file", launcher, 0, config.new_run_id()) is None
    assert jobs.remove_ended(tmp_path / "nothing") == 0
