"""The sender process: started, shared, outliving its training, ending by itself."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from halfscope.record.layout import StreamPlace, is_locked
from halfscope.record.reader import read_stream
from halfscope.record.recorder import Recorder
from halfscope.send import drain, ensure_sender, keep_sender, process, status
from halfscope.send.outbox import Outbox
from halfscope.send.process import crash_path, lock_path, status_path
from halfscope.wire.messages import End, Start, StreamInfo

RUN, STREAM = "01jabcdefghjkmnp", "ab12"

TRAINER = """
import os, sys, time
from pathlib import Path
from halfscope.record.recorder import Recorder
from halfscope.send import drain, ensure_sender
from halfscope.wire.messages import End, Start, StreamInfo
directory, server, stream, then = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
info = StreamInfo(pid=os.getpid())
recorder = Recorder.open(directory=directory, run_id="01jabcdefghjkmnp", stream=stream, info=info,
                         start=Start(time_us=1, project="p", name="n"))
ensure_sender(directory=directory, server=server)
sid = recorder.declare("loss")
for step in range(200):
    recorder.row(step, step, [(sid, float(step))])
if then == "finish":
    recorder.close(End(outcome="finished", step=199, time_us=0))
    print("drained", drain("01jabcdefghjkmnp", stream, 5.0, directory=directory), flush=True)
else:
    recorder.flush(5.0)
    print("waiting", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(directory: Path) -> StreamPlace:
    return StreamPlace(directory=directory, run_id=RUN, stream=STREAM)


@pytest.fixture(autouse=True)
def _no_sender_is_left_behind(directory: Path) -> Iterator[None]:
    yield
    pid = status(directory).pid
    if pid:
        os.kill(pid, signal.SIGTERM)


def start_trainer(directory: Path, url: str, stream: str, then: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", TRAINER, str(directory), url, stream, then], stdout=subprocess.PIPE, text=True
    )


def record(directory: Path, stream: str = STREAM) -> Recorder:
    return Recorder.open(
        directory=directory,
        run_id=RUN,
        stream=stream,
        info=StreamInfo(pid=os.getpid()),
        start=Start(time_us=1, project="p", name="n"),
    )


def test_a_run_is_shipped_by_the_time_drain_returns(
    directory: Path, place: StreamPlace, start_server: Callable[..., Any], model: Any, wait_until: Callable[..., None]
) -> None:
    """Started beside the training, which waits for the last acknowledgement and no longer."""
    server = start_server()
    recorder = record(directory)
    sender = ensure_sender(directory=directory, server=server.url)
    assert (sender.running, sender.reachable, sender.warning) == (True, True, "")
    sid = recorder.declare("loss")
    for step in range(100):
        recorder.row(step, step, [(sid, 1.0)])
    recorder.close(End(outcome="finished", step=99, time_us=0))
    assert drain(RUN, STREAM, 20.0, directory=directory)
    assert model.streams[RUN, STREAM].records == list(read_stream(place))
    wait_until(lambda: model.streams[RUN, STREAM].ended == "ended")


def test_a_killed_sender_is_replaced_while_the_training_goes_on(
    directory: Path,
    place: StreamPlace,
    start_server: Callable[..., Any],
    model: Any,
    wait_until: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The journal thread starts another, and the server ends with every record once."""
    monkeypatch.setattr("halfscope.record.recorder.TEND_INTERVAL_S", 0.1)
    url = start_server().url
    ensure_sender(directory=directory, server=url)
    recorder = record(directory)
    recorder.tend = partial(keep_sender, directory=directory, server=url)
    sid = recorder.declare("loss")
    recorder.row(0, 0, [(sid, 1.0)])
    wait_until(lambda: status(directory).num_streams == 1)
    first = status(directory).pid
    os.kill(first, signal.SIGKILL)
    recorder.row(1, 1, [(sid, 2.0)])
    wait_until(lambda: status(directory).pid not in (0, first))
    recorder.close(End(outcome="finished", step=1, time_us=0))
    assert drain(RUN, STREAM, 20.0, directory=directory)
    assert model.streams[RUN, STREAM].records == list(read_stream(place))


def test_ranks_share_one_sender(
    directory: Path, start_server: Callable[..., Any], model: Any, wait_until: Callable[..., None]
) -> None:
    """Four start at once; one sender ships them all, and the others' have gone."""
    url = start_server().url
    trainers = [start_trainer(directory, url, f"{rank:02x}", "wait") for rank in range(4)]
    try:
        for trainer in trainers:
            assert trainer.stdout is not None
            assert trainer.stdout.readline() == "waiting\n"
        wait_until(lambda: status(directory).num_streams == 4)
        wait_until(lambda: len(model.streams) == 4)
        first = status(directory).pid
        again = ensure_sender(directory=directory, server=url)
        assert again.running
        assert status(directory).pid == first
    finally:
        for trainer in trainers:
            trainer.kill()
            trainer.communicate()
    wait_until(lambda: [s.ended for s in model.streams.values()] == ["killed"] * 4)


def test_the_tail_of_a_killed_training_is_shipped(
    directory: Path, place: StreamPlace, start_server: Callable[..., Any], model: Any, wait_until: Callable[..., None]
) -> None:
    """The sender lives in a session of its own, ships what is left, and says that the process was killed."""
    trainer = start_trainer(directory, start_server().url, STREAM, "wait")
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == "waiting\n"
    os.kill(trainer.pid, signal.SIGKILL)
    trainer.communicate()
    wait_until(lambda: model.streams and model.streams[RUN, STREAM].ended == "killed")
    assert model.streams[RUN, STREAM].records == list(read_stream(place))


def test_a_pipe_behind_the_training_ends_with_the_training(directory: Path, start_server: Callable[..., Any]) -> None:
    """`train.py | tee log` would hang if the sender held the other end of the pipe."""
    trainer = start_trainer(directory, start_server().url, STREAM, "finish")
    out, _ = trainer.communicate(timeout=30)
    assert out == "drained True\n"
    assert is_locked(lock_path(directory))


def test_the_sender_ends_by_itself(
    directory: Path, start_server: Callable[..., Any], wait_until: Callable[..., None], model: Any
) -> None:
    """When everything is acknowledged, also what somebody else had taken and given up; its status file goes with it."""
    record(directory).close(End(outcome="finished", step=0, time_us=0))
    other = Outbox.open(StreamPlace(directory=directory, run_id=RUN, stream=STREAM), "another server")
    assert other is not None
    command = [sys.executable, "-m", "halfscope.send", str(directory), "--server", start_server().url]
    with subprocess.Popen([*command, "--idle-s", "0.1"]) as sender:
        wait_until(lambda: status_path(directory).exists())
        with pytest.raises(subprocess.TimeoutExpired):
            sender.wait(0.5)
        assert not model.streams
        other.close()
        assert sender.wait(30) == 0
    wait_until(lambda: model.streams[RUN, STREAM].ended == "ended")
    assert status(directory).state == "none"
    assert not status_path(directory).exists()


def test_without_a_server_there_is_one_warning_with_what_to_do(
    directory: Path, caplog: pytest.LogCaptureFixture, wait_until: Callable[..., None]
) -> None:
    """At the start, within the time it may cost; the sender keeps trying, and the end does not wait for it."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    recorder = record(directory)
    sender = ensure_sender(directory=directory, server=url)
    assert (sender.running, sender.reachable) == (True, False)
    assert [entry.message for entry in caplog.records] == [sender.warning]
    assert f"no server answers at {url}" in sender.warning
    assert "halfscope serve" in sender.warning
    assert f"halfscope sync {directory}" in sender.warning
    wait_until(lambda: status(directory).state == "unreachable")
    recorder.close(End(outcome="finished", step=0, time_us=0))
    began_s = time.monotonic()
    assert not drain(RUN, STREAM, 10.0, directory=directory)
    assert time.monotonic() - began_s < 5
    assert len(caplog.records) == 1


def test_an_address_that_swallows_everything_costs_a_third_of_a_second(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that drops packets does not answer at all."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # Connections that nobody accepts fill the backlog; the next one waits.
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        began_s = time.monotonic()
        sender = ensure_sender(directory=directory, server=f"http://127.0.0.1:{full.getsockname()[1]}")
        assert not sender.reachable
        assert time.monotonic() - began_s < process.CONNECT_CHECK_S + 1.0
        for one in waiting:
            one.close()


def test_a_sender_of_another_server_is_told(
    directory: Path, start_server: Callable[..., Any], wait_until: Callable[..., None]
) -> None:
    """One directory goes to one server; the message says what to change."""
    recorder = record(directory)
    ensure_sender(directory=directory, server=start_server().url)
    wait_until(lambda: status(directory).state == "connected")
    other = start_server().url
    sender = ensure_sender(directory=directory, server=other)
    assert f"not to {other}" in sender.warning
    assert "HALFSCOPE_DIR" in sender.warning
    recorder.close(None)


def test_offline_runs_are_left_alone(
    directory: Path, start_server: Callable[..., Any], wait_until: Callable[..., None], model: Any
) -> None:
    """By a sender that runs for others in the same directory."""
    offline = Recorder.open(
        directory=directory,
        run_id=RUN,
        stream="ff",
        info=StreamInfo(),
        start=Start(time_us=1, project="p", name="n"),
        offline=True,
    )
    online = record(directory)
    ensure_sender(directory=directory, server=start_server().url)
    online.close(End(outcome="finished", step=0, time_us=0))
    offline.close(End(outcome="finished", step=0, time_us=0))
    assert drain(RUN, STREAM, 20.0, directory=directory)
    assert list(model.streams) == [(RUN, STREAM)]


def test_without_a_sender_process_the_end_ships_by_itself(
    directory: Path,
    place: StreamPlace,
    start_server: Callable[..., Any],
    model: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Where no process can be started: told at the start, and made up for at the end."""
    monkeypatch.setattr(sys, "executable", "")
    recorder = record(directory)
    sender = ensure_sender(directory=directory, server=start_server().url)
    assert not sender.running
    assert "cannot be started" in caplog.text
    recorder.close(End(outcome="finished", step=0, time_us=0))
    assert drain(RUN, STREAM, 10.0, directory=directory)
    assert model.streams[RUN, STREAM].records == list(read_stream(place))


def test_a_token_that_is_not_taken_is_told_at_the_end(
    directory: Path,
    start_server: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    wait_until: Callable[..., None],
) -> None:
    """The port answered, so the start said nothing."""
    server = start_server(token="right")
    monkeypatch.setenv("HALFSCOPE_TOKEN", "wrong")
    recorder = record(directory)
    assert ensure_sender(directory=directory, server=server.url).warning == ""
    wait_until(lambda: status(directory).state == "unauthorized")
    recorder.close(End(outcome="finished", step=0, time_us=0))
    assert not drain(RUN, STREAM, 10.0, directory=directory)
    assert "does not take this run" in caplog.text
    assert f"run `halfscope login {server.url}`, then `halfscope sync {directory}`" in caplog.text
    assert "right" not in status_path(directory).read_text()


def test_the_sender_loads_neither_torch_nor_numpy() -> None:
    """It is small: it forwards bytes. Looking for it loads no sockets library either."""
    script = (
        "import sys, halfscope.send.__main__; assert not {'torch', 'numpy'} & set(sys.modules), 'sender';print('ok')"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=60).stdout == b"ok\n"
    script = (
        "import sys; from halfscope.send import ensure_sender, drain; "
        "assert not {'torch', 'numpy', 'websockets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


def test_a_module_of_the_training_does_not_get_into_the_sender(
    directory: Path, tmp_path: Path, start_server: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file named like a module of the standard library lies in the directory where the training runs."""
    trap = tmp_path / "training"
    trap.mkdir()
    (trap / "socket.py").write_text("raise SystemExit('the wrong module')")
    (trap / "msgspec.py").write_text("raise SystemExit('the wrong module')")
    monkeypatch.chdir(trap)
    recorder = record(directory)
    ensure_sender(directory=directory, server=start_server().url)
    recorder.close(End(outcome="finished", step=0, time_us=0))
    assert drain(RUN, STREAM, 20.0, directory=directory)


def test_a_status_file_that_cannot_be_read_is_a_sender_that_starts(directory: Path) -> None:
    """The lock says that one runs; what it says of itself is not there yet."""
    directory.mkdir()
    script = (
        "import sys; from pathlib import Path; from halfscope.record.layout import try_lock;"
        "from halfscope.send.process import lock_path;"
        "lock = try_lock(lock_path(Path(sys.argv[1]))); print('held', flush=True); sys.stdin.read()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert status(directory).state == "starting"
        status_path(directory).write_text(json.dumps({"pid": "no number"}))
        assert status(directory).state == "starting"
    finally:
        holder.communicate("")
    assert status(directory).state == "none"


def test_a_sender_that_fails_leaves_its_traceback(directory: Path, start_server: Callable[..., Any]) -> None:
    """Nobody reads its standard error."""
    directory.mkdir()
    script = (
        "import sys, halfscope.send.__main__ as sender\n"
        "def broken(*_, **__): raise RuntimeError('a bug')\n"
        "sender.Shipper = broken\n"
        "sys.argv = ['send', sys.argv[1]]\n"
        "sender.main()"
    )
    done = subprocess.run([sys.executable, "-c", script, str(directory)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "RuntimeError: a bug" in crash_path(directory).read_text()
    assert status(directory).state == "none"
