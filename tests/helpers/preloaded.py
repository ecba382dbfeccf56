"""Python programs in processes of their own that need not import torch: forks of one process that has done so.

    with Preloaded() as python:
        done = python.run(["-c", "import torch; ..."], env=environment)

As a script this file is that process. A fork leaves its loop, and the program then runs as the rest of the script:
uncaught exceptions, `sys.exit`, threads, hooks at exit and signals are Python's own business, as ever. Not for programs
that set up what torch or Python read when they are loaded (thread counts, options of the interpreter).
Invariant: nothing of halfscope is loaded before the fork.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path


class Preloaded:
    """Starts programs; one at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-W", "error", __file__, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket, self._answers = ours, ours.makefile("r")

    def __enter__(self) -> Preloaded:
        return self

    def __exit__(self, *_error: object) -> None:
        self._answers.close()
        self._socket.close()
        self._process.wait(60)

    def run(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        strict: bool = True,
        timeout_s: float = 120.0,
    ) -> subprocess.CompletedProcess[str]:
        """What `python ARGUMENTS` does, with `-c CODE`, `-m MODULE` or a file first; killed after `timeout_s`.

        Args:
            strict: with `-W error`.
        """
        places = {"env": dict(env or os.environ), "cwd": str(cwd or Path.cwd())}
        request = {"arguments": list(arguments), "strict": strict, **places}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            socket.send_fds(self._socket, [b"."], [out.fileno(), err.fileno()])
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            pid = int(self._answers.readline())
            limit = threading.Timer(timeout_s, os.kill, (pid, signal.SIGKILL))
            limit.start()
            code = int(self._answers.readline())
            limit.cancel()
            texts = [os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode() for file in (out, err)]
        return subprocess.CompletedProcess(list(arguments), code, *texts)


def _next_program(server: socket.socket) -> list[str]:
    """Forks for every request; returns in the forks alone, with the arguments of the program to be.

    A fork has working directory, environment and standard output of its own by then, as a process started anew has.
    """
    requests = server.makefile("rb")
    while True:
        mark, (*fds,), _, _ = socket.recv_fds(server, 1, 2)
        if not mark:
            os._exit(0)
        request = json.loads(requests.readline())
        pid = os.fork()
        if pid == 0:
            requests.close()
            server.close()
            for target, fd in enumerate(fds, start=1):
                os.dup2(fd, target)
                os.close(fd)
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["env"])
            if not request["strict"]:
                sys.warnoptions.clear()
                warnings.filters.remove(("error", None, Warning, None, 0))  # type: ignore[attr-defined]
            return list(request["arguments"])
        for fd in fds:
            os.close(fd)
        server.sendall(f"{pid}\n".encode())
        server.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())


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


def _load() -> None:
    importlib.import_module("torch._dynamo")  # every optimizer loads it when it is made
    gc.freeze()  # what is there now need not be looked through in every fork


if __name__ == "__main__":
    _load()
    _run(_next_program(socket.socket(fileno=int(sys.argv[1]))))
