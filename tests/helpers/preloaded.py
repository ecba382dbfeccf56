"""Python programs in processes of their own that need not import much: forks of one process that has done so.

    with Preloaded() as python:
        done = python.run(["-c", "import torch; ..."], env=environment)
        server = python.start(["-m", "halfscope", "serve"], stdout=log, stderr=log)
        with python.executable() as interpreter:
            subprocess.run([interpreter, "-m", "halfscope.demo", "--list"])  # by whom it may be

As a script this file is that process. A fork leaves its loop, and the program then runs as the rest of the script:
uncaught exceptions, `sys.exit`, threads, hooks at exit and signals are Python's own business, as ever. Not for programs
that set up what torch or Python read when they are loaded (thread counts, options of the interpreter). All test
processes below `shared` have one such process of each kind in common, since to load torch takes several seconds.
Invariant: nothing is loaded before the fork but what was asked for; for programs that train, nothing of halfscope.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TRAINING = ("torch._dynamo",)  # every optimizer loads it when it is made
SERVING = ("halfscope_server.app", "halfscope_server.cli.serve", "alembic.command", "plotly.graph_objects")
SHARED = {TRAINING: "training", SERVING: "serving"}
FOLDER = "HALFSCOPE_TEST_PRELOADED"
"""Names the folder in which the shared ones are found, each as a socket."""
FORKED_S = 120.0
"""Until a program has begun: what it is forked from may have to be loaded before."""

_STAND_IN = """\
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"."], [0, 1, 2])
    request = dict(arguments=sys.argv[1:], env=dict(os.environ), cwd=os.getcwd())
    server.sendall(json.dumps(request).encode() + b"\\n")
    code = int(server.makefile().readline())
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


class Forked:
    """A program that was started; used as a `subprocess.Popen`."""

    def __init__(self, arguments: Sequence[str], status: socket.socket) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self._status, self._said = status, b""
        try:
            self.pid = self._next_number(FORKED_S)
        except BaseException:
            status.close()
            raise

    def poll(self) -> int | None:
        try:
            return self.wait(0.0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout_s: float | None = None) -> int:
        """The exit code, minus the signal's number where one ended it.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        if self.returncode is None:
            self.returncode = self._next_number(timeout_s)
            self._status.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _next_number(self, timeout_s: float | None) -> int:
        while b"\n" not in self._said:
            if not select.select([self._status], [], [], timeout_s)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout_s or 0.0)
            said = self._status.recv(64)
            assert said, f"what waits for {self.args} is gone"
            self._said += said
        number, _, self._said = self._said.partition(b"\n")
        return int(number)


class Preloaded:
    """Starts programs."""

    def __init__(self, modules: tuple[str, ...] = TRAINING, listener: socket.socket | None = None) -> None:
        """
        Args:
            listener: where others may ask for programs too. Without one, and where there is a shared process of this
                kind, that one starts the programs.
        """
        self._process: subprocess.Popen[bytes] | None = None
        self._one_at_a_time = threading.Lock()
        if listener is None and FOLDER in os.environ and modules in SHARED:
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.connect(str(Path(os.environ[FOLDER], SHARED[modules])))
            return
        self._socket, theirs = socket.socketpair()
        with theirs:
            fds = [theirs.fileno(), *([listener.fileno()] if listener is not None else [])]
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", __file__, ",".join(map(str, fds)), *modules],
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,
            )

    def __enter__(self) -> Preloaded:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()
        if self._process is not None:
            self._process.wait(60)

    def start(
        self,
        arguments: Sequence[str],
        *,
        stdout: int,
        stderr: int,
        stdin: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        strict: bool = True,
    ) -> Forked:
        """Begins what `python ARGUMENTS` does, with `-c CODE`, `-m MODULE` or a file first.

        Args:
            stdout, stderr, stdin: descriptors, which stay the caller's; without the last there is nothing to read.
            strict: with `-W error`.
        """
        places = {"env": dict(env or os.environ), "cwd": str(cwd or Path.cwd())}
        request = {"arguments": list(arguments), "strict": strict, **places}
        status, theirs = socket.socketpair()
        with self._one_at_a_time, theirs, Path(os.devnull).open("rb") as nothing:
            given = nothing.fileno() if stdin is None else stdin
            socket.send_fds(self._socket, [b"."], [given, stdout, stderr, theirs.fileno()])
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            return Forked(arguments, status)

    def run(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        strict: bool = True,
        timeout_s: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """As `start`, to its end, with all that it wrote; killed after `timeout_s`."""
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            program = self.start(arguments, stdout=out.fileno(), stderr=err.fileno(), env=env, cwd=cwd, strict=strict)
            limit = threading.Timer(timeout_s, os.kill, (program.pid, signal.SIGKILL))
            limit.start()
            code = program.wait()
            limit.cancel()
            texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, err)]
        return subprocess.CompletedProcess(list(arguments), code, *texts)

    @contextlib.contextmanager
    def executable(self) -> Iterator[str]:
        """A program that does what `python ARGUMENTS` does, and ends with the exit code of the fork that did it.

        For what starts Python itself, and neither sends it signals nor minds its process number.
        """
        # In a folder of its own: the address of a socket has room for a hundred characters.
        with tempfile.TemporaryDirectory(prefix="halfscope-") as folder, socket.socket(socket.AF_UNIX) as listener:
            path, address = Path(folder, "python"), str(Path(folder, "socket"))
            path.write_text(f"#!{sys.executable} -IS\n{_STAND_IN.format(address=address)}")
            path.chmod(0o755)
            listener.bind(address)
            listener.listen()
            threading.Thread(target=self._stand_in, args=(listener,), daemon=True).start()
            try:
                yield str(path)
            finally:
                listener.shutdown(socket.SHUT_RDWR)

    def _stand_in(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it is shut down
            while True:
                asker = listener.accept()[0]
                threading.Thread(target=self._start_for, args=(asker,), daemon=True).start()

    def _start_for(self, asker: socket.socket) -> None:
        with asker, asker.makefile("rb") as lines:
            _, fds, _, _ = socket.recv_fds(asker, 1, 3)
            request = json.loads(lines.readline())
            try:
                program = self.start(
                    request["arguments"], stdin=fds[0], stdout=fds[1], stderr=fds[2], env=request["env"],
                    cwd=Path(request["cwd"]), strict=False,
                )  # fmt: skip
            finally:
                for fd in fds:
                    os.close(fd)
            with contextlib.suppress(BrokenPipeError):
                asker.sendall(f"{program.wait()}\n".encode())


@functools.cache
def serving() -> Preloaded:
    """For `halfscope serve` and the other commands of the server's; one for this process, as long as it lives."""
    preloaded = Preloaded(SERVING)
    atexit.register(preloaded.__exit__)
    return preloaded


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[Mapping[str, str]]:
    """One process of each kind for whoever is started with these variables in its environment."""
    with contextlib.ExitStack() as stack:
        for modules, name in SHARED.items():
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(folder / name))
            listener.listen()
            stack.enter_context(Preloaded(modules, listener))
        yield {FOLDER: str(folder)}


def _next_program(owner: socket.socket, listener: socket.socket | None = None) -> list[str]:
    """Forks for every request; returns in the forks alone, with the arguments of the program to be.

    A fork has working directory, environment and standard streams of its own by then, as a process started anew has.
    Ends when the owner, who may ask as well as those who come to the listener, is gone.
    """
    asking = {owner, *([listener] if listener is not None else [])}
    while True:
        for asker in select.select(asking, [], [])[0]:
            if asker is listener:
                asking.add(listener.accept()[0])
                continue
            mark, fds, _, _ = socket.recv_fds(asker, 1, 4)
            line = _line(asker) if mark else b""
            if line:
                with contextlib.suppress(ChildProcessError):
                    while os.waitpid(-1, os.WNOHANG)[0]:  # of earlier programs, what waited for them
                        pass
                if os.fork() == 0:
                    for each in asking:
                        each.close()
                    _as_parent(*fds)
                    return _become(json.loads(line))
            elif asker is owner:
                os._exit(0)
            else:
                asking.remove(asker)
                asker.close()
            for fd in fds:
                os.close(fd)


def _line(asker: socket.socket) -> bytes:
    """The whole of a request, behind which nothing is said before it is answered; nothing where the asker is gone."""
    said = b""
    while not said.endswith(b"\n"):
        more = asker.recv(1 << 20)
        if not more:
            return b""
        said += more
    return said


def _as_parent(given: int, out: int, err: int, status: int) -> None:
    """Forks, returns in the fork, and there alone; here it says how that ends."""
    pid = os.fork()
    if pid != 0:
        for fd in (given, out, err):
            os.close(fd)
        os.write(status, f"{pid}\n".encode())
        ended = os.pidfd_open(pid)
        if ended not in select.select([ended, status], [], [])[0]:
            os.kill(pid, signal.SIGTERM)  # who started it is gone without a word
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(BrokenPipeError):
            os.write(status, f"{code}\n".encode())
        os._exit(0)
    os.close(status)
    for target, fd in enumerate((given, out, err)):
        os.dup2(fd, target)
        os.close(fd)


def _become(request: Mapping[str, Any]) -> list[str]:
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if not request["strict"]:
        sys.warnoptions.clear()
        warnings.filters.remove(("error", None, Warning, None, 0))  # type: ignore[attr-defined]
    return list(request["arguments"])


def _run(arguments: Sequence[str]) -> None:
    """As Python itself would, in a `__main__` of its own."""
    first, *rest = arguments
    if first == "-m":
        sys.argv[:], sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv[:], sys.path[0] = ["-c", *rest[1:]], ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv[:], sys.path[0] = [first, *rest], str(Path(first).resolve().parent)
        runpy.run_path(first, run_name="__main__")


def _load(modules: Sequence[str]) -> None:
    for module in modules:
        importlib.import_module(module)
    gc.freeze()  # what is there now need not be looked through in every fork


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a script's background has it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    _load(sys.argv[2:])
    _run(_next_program(*(socket.socket(fileno=int(fd)) for fd in sys.argv[1].split(","))))
