"""`halfscope runs`, `export` and `sync`, from a journal that was written while no server ran."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from halfscope.record.recorder import Recorder
from halfscope.sketch import of_array, stack
from halfscope.wire.messages import End, Layer, Start, StreamInfo

from tests.helpers.preloaded import serving

Command = Callable[..., subprocess.CompletedProcess[str]]
"""Runs `halfscope` with a home and arguments."""
Environment = Callable[[Path], dict[str, str]]
"""The environment of a command with that home."""

RUN = "01jh0000000000r1"
OFFLINE_RUN = "01jh0000000000r2"
START_US = 1_767_323_045_000_000
NUM_STEPS = 50
SKETCHED = (0, 10, 20)
GRADIENTS = {
    "body.weight": np.array([[1.0, -2.0, 3.0, 0.0], [-0.0, 2.0**-30, math.nan, math.inf]], np.float32),
    "head.bias": np.array([-math.inf, 0.75], np.float32),
}
"""At step 0; times (step + 1) later."""
PICKED_UP_S = 30.0


def _journal(directory: Path, run_id: str, *, name: str, offline: bool = False) -> None:
    """A training's journal: 50 steps with a NaN in the loss, a skip, and an end."""
    start = Start(time_us=START_US, project="digits", name=name, config={"lr": 0.1})
    info = StreamInfo(started_us=START_US)
    recorder = Recorder.open(
        directory=directory, run_id=run_id, stream="00ff00ff00ff00ff", info=info, start=start, offline=offline
    )
    loss, scale = recorder.declare("loss"), recorder.declare("amp.scale", unit="1", kind="state")
    recorder.facts({"precision": "FP16-AMP"})
    for step in range(NUM_STEPS):
        value = math.nan if step == 7 else 1.0 / (1 + step)
        recorder.row(step, START_US + step * 1000, [(loss, value), (scale, 65536.0)])
    recorder.layers([Layer(lid, name, list(values.shape)) for lid, (name, values) in enumerate(GRADIENTS.items())])
    for step in SKETCHED:
        recorder.sketches(
            step,
            START_US + step * 1000,
            point="unscale",
            clipped="no",
            scale=65536.0,
            lids=range(len(GRADIENTS)),
            sketches=stack([of_array(values * (step + 1)) for values in GRADIENTS.values()]),
        )
    recorder.event("skip", 7, attributes={"class": "single"})
    recorder.close(End(outcome="finished", step=NUM_STEPS - 1, time_us=START_US + NUM_STEPS * 1000))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., Any], run_command: Command) -> Iterator[Any]:
    """A server started after two trainings had ended, the second of which was recorded offline."""
    home = tmp_path_factory.mktemp("home")
    _journal(home / "journals", RUN, name="fp16-digits")
    _journal(home / "journals", OFFLINE_RUN, name="kept-to-itself", offline=True)
    with serve(home, "--port", "0") as running:
        deadline = time.monotonic() + PICKED_UP_S
        while _states(running, run_command).get(RUN) != "finished":
            assert time.monotonic() < deadline, "the journal was not picked up"
            time.sleep(0.2)
        yield running


def _states(server: Any, run_command: Command) -> dict[str, str]:
    done = run_command(server.home, "runs", "--json")
    assert done.returncode == 0, done.stderr
    return {run["id"]: run["state"] for run in json.loads(done.stdout)}


def test_server_picks_up_what_nobody_ships_and_leaves_offline_runs(server: Any, invoke: Command) -> None:
    """What was recorded offline goes to a server when its owner says so."""
    assert _states(server, invoke) == {RUN: "finished"}


def test_runs_are_listed_alike_from_the_server_and_from_the_database(server: Any, invoke: Command) -> None:
    """With the fields that scripts rely on, in both ways."""
    asked = invoke(server.home, "runs", "--json")
    read = invoke(server.home, "runs", "--json", "--database-url", f"sqlite:///{server.home / 'halfscope.db'}")
    assert json.loads(asked.stdout)[0] == {
        "id": RUN,
        "name": "fp16-digits",
        "project": "digits",
        "state": "finished",
        "precision": "FP16-AMP",
        "attempts": 1,
        "last_step": NUM_STEPS - 1,
    }
    assert read.stdout == asked.stdout
    table = invoke(server.home, "runs").stdout.splitlines()
    assert table[0].split()[:3] == ["id", "name", "project"]
    assert table[1].split()[:2] == [RUN, "fp16-digits"]


def test_export_gives_every_value_back_and_the_same_bytes_both_ways(server: Any, invoke: Command) -> None:
    """By id, by the beginning of one, and by name; from the server and from the database."""
    asked = invoke(server.home, "export", RUN)
    database = f"sqlite:///{server.home / 'halfscope.db'}"
    for other in ((RUN[:-1],), ("fp16-digits",), (RUN, "--database-url", database)):
        assert invoke(server.home, "export", *other).stdout == asked.stdout
    rows = [json.loads(line) for line in asked.stdout.splitlines()]
    loss = {row["step"]: row["value"] for row in rows if row.get("series") == "loss"}
    assert loss == {step: 1.0 / (1 + step) for step in range(NUM_STEPS)} | {7: "NaN"}
    assert [row["step"] for row in rows if row.get("event") == "skip"] == [7]


def test_export_narrows_to_series_kind_and_format(server: Any, invoke: Command) -> None:
    """A glob, one kind of rows, and CSV with a head."""
    only_scale = invoke(server.home, "export", RUN, "--series", "amp.*").stdout.splitlines()
    assert {json.loads(line)["series"] for line in only_scale} == {"amp.scale"}
    events = invoke(server.home, "export", RUN, "--kind", "events").stdout.splitlines()
    assert {json.loads(line)["kind"] for line in events} == {"event"}
    csv = invoke(server.home, "export", RUN, "--format", "csv", "--series", "loss").stdout.splitlines()
    assert csv[0] == "series,labels,rank,attempt,step,time,value"
    assert len(csv) == NUM_STEPS + 1


@pytest.mark.parametrize("direct", [False, True])
def test_export_and_runs_end_quietly_when_nobody_reads(
    server: Any, environment: Environment, tmp_path: Path, direct: bool
) -> None:
    """As in `halfscope export RUN | head`: exit code 0 and no word, whichever way the rows come."""
    database = ("--database-url", f"sqlite:///{server.home / 'halfscope.db'}") if direct else ()
    for arguments in (("export", RUN), ("export", RUN, "--format", "csv"), ("runs", "--json")):
        reading, writing = os.pipe()
        os.close(reading)
        with (tmp_path / "said").open("w+", encoding="utf-8") as said:
            done = serving().start(
                ["-m", "halfscope", *arguments, *database],
                env=environment(server.home),
                stdout=writing,
                stderr=said.fileno(),
            )
            os.close(writing)
            assert (done.wait(60.0), said.read()) == (0, "")


def test_sketches_come_out_as_what_went_in(server: Any, invoke: Command) -> None:
    """From the journal through the server to rows: every count, by a plain recount; the same bytes both ways."""
    asked = invoke(server.home, "export", RUN, "--kind", "sketches")
    read = invoke(
        server.home, "export", RUN, "--kind", "sketches", "--database-url", f"sqlite:///{server.home / 'halfscope.db'}"
    )
    assert read.stdout == asked.stdout
    rows = [json.loads(line) for line in asked.stdout.splitlines()]
    assert [(row["step"], row["layer"]) for row in rows] == [(step, name) for step in SKETCHED for name in GRADIENTS]
    for row in rows:
        values = [float(value) for value in (GRADIENTS[row["layer"]] * (row["step"] + 1)).ravel()]
        nonzero = [value for value in values if math.isfinite(value) and value]
        assert (row["n"], row["zeros"], row["nan"], row["pos_inf"], row["neg_inf"]) == (
            len(values),
            values.count(0.0),
            sum(map(math.isnan, values)),
            values.count(math.inf),
            values.count(-math.inf),
        )
        exponents = [str(math.frexp(value)[1] - 1) for value in nonzero]
        assert row["exponents"] == {each: exponents.count(each) for each in exponents}
        assert (row["sum"], row["sumsq"]) == pytest.approx((sum(nonzero), sum(v * v for v in nonzero)))
        assert row["absmax"] == max(map(abs, nonzero))
        assert (row["kind"], row["of"], row["scale"], row["point"]) == ("sketch", "grad", 65536.0, "unscale")
    csv = invoke(server.home, "export", RUN, "--kind", "sketches", "--format", "csv").stdout.splitlines()
    assert len(csv) == 1 + len(rows)


def test_unknown_run_is_named_in_the_error(server: Any, invoke: Command) -> None:
    """And nothing is on stdout."""
    done = invoke(server.home, "export", "nothing-like-it")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no run 'nothing-like-it'" in done.stderr


def test_sync_ships_what_was_recorded_offline(server: Any, invoke: Command) -> None:
    """When its owner says so; a second time there is nothing left to send."""
    directory = server.home / "journals"
    done = invoke(server.home, "sync", str(directory))
    assert done.returncode == 0, done.stderr
    assert f"to {server.url}" in done.stdout
    assert _states(server, invoke) == {RUN: "finished", OFFLINE_RUN: "finished"}
    again = invoke(server.home, "sync", str(directory))
    assert again.returncode == 0
    assert " 0 records" in again.stdout


def test_sync_without_journals_or_server_says_what_to_do(tmp_path: Path, invoke: Command) -> None:
    """One line on stderr each."""
    missing = invoke(tmp_path, "sync", str(tmp_path / "nothing"))
    assert missing.returncode == 1
    assert "is no directory" in missing.stderr
    assert "Traceback" not in missing.stderr
