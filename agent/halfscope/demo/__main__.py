"""`python -m halfscope.demo`: trains runs of the demo side by side and prints JSON progress lines.

Owns arguments, processes, niceness and output. Invariant: standard output holds JSON lines only, each flushed at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import NoReturn

from halfscope.demo.trainings import RANKS_TRAININGS, TRAININGS, Training, find

NICENESS = 10
"""Server and browser come first on a small machine, so that the picture stays fluent while five trainings run."""
CAN_FORK = sys.platform == "linux"
"""Elsewhere libraries of the system do not bear it: there each run is a program of its own."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(training.name for training in (RANKS_TRAININGS if options.ranks else TRAININGS)))
        return 0
    try:
        trainings = [find(name) for name in options.run]
    except ValueError as error:
        parser.error(str(error))
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps is {options.steps}; expected at least 1")
    if len(trainings) > 1 and any(training.num_ranks > 1 for training in trainings):
        parser.error("a run of several ranks is trained alone; expected one --run")
    if trainings[0].num_ranks > 1 and "RANK" not in os.environ:
        _launch(trainings[0].num_ranks, _command(trainings[0], options, _server(options.server)))
    if len(trainings) > 1 and not CAN_FORK:
        server = _server(options.server)
        commands = {training.name: _command(training, options, server) for training in trainings}
        program = [sys.executable, "-m", "halfscope.demo"]
        pids = {os.spawnv(os.P_NOWAIT, sys.executable, [*program, *commands[name]]): name for name in commands}
        return _tell_ends(pids)
    _load_torch()
    _be_modest()
    server = _server(options.server)
    training = trainings[0]
    if len(trainings) > 1:
        pids = {}
        for training in trainings:
            if (pid := os.fork()) == 0:
                break
            pids[pid] = training.name
        else:
            return _tell_ends(pids)
    return _train(training, options.steps, server, options.project)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m halfscope.demo", description="Train runs of the halfscope demo.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--list", action="store_true", help="print the names of the runs and stop")
    which.add_argument("--run", metavar="NAME", action="append", help="a run to train; again for more, side by side")
    parser.add_argument("--ranks", action="store_true", help="with --list: the runs of several ranks")
    parser.add_argument(
        "--server",
        metavar="URL",
        help="address of the halfscope server; - for a line of standard input, asked for when torch is loaded; "
        "default: as for any training",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="train N steps instead of the run's own number")
    parser.add_argument("--project", default="halfscope-demo", help="project the runs appear under")
    return parser


def _server(told: str | None) -> str | None:
    return sys.stdin.readline().strip() or None if told == "-" else told


def _command(training: Training, options: argparse.Namespace, server: str | None) -> list[str]:
    """The arguments that train one of the runs in a process of its own."""
    chosen = {"--server": server, "--steps": options.steps, "--project": options.project}
    return [f"--run={training.name}", *(f"{name}={value}" for name, value in chosen.items() if value is not None)]


def _train(training: Training, num_steps: int | None, server: str | None, project: str) -> int:
    from halfscope.demo.train import train

    try:
        for progress in train(training, num_steps=num_steps, server=server, project=project):
            # NaN is written as Python reads it; only `halfscope demo` and people read these lines.
            if os.environ.get("RANK", "0") == "0":
                print(json.dumps(asdict(progress)), flush=True)
    except ImportError as error:
        print(json.dumps({"run": training.name, "error": str(error)}), flush=True)
        print(f"halfscope demo: {error}", file=sys.stderr)
        return 1
    except Exception as error:
        print(json.dumps({"run": training.name, "error": f"{type(error).__name__}: {error}"}), flush=True)
        raise
    return 0


def _tell_ends(names: dict[int, str]) -> int:
    """Waits for processes and says of each how it ended; what interrupts this one interrupts them.

    Returns:
        1 where one of them failed.
    """

    def interrupt(*_: object) -> None:
        for pid in list(names):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGINT)

    signal.signal(signal.SIGINT, interrupt)
    worst = 0
    while names:
        pid, status = os.wait()
        name, code = names.pop(pid), os.waitstatus_to_exitcode(status)
        worst = max(worst, int(code != 0))
        print(json.dumps({"run": name, "code": code}), flush=True)
    return worst


def _launch(num_ranks: int, arguments: Sequence[str]) -> NoReturn:
    """Becomes torchrun, which starts this program once per rank."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks), "-m"]
    # Behind the dashes nothing is torchrun's: it would take --run for an abbreviation of its own.
    os.execv(sys.executable, [sys.executable, *torchrun, "--", "halfscope.demo", *arguments])


def _load_torch() -> None:
    """Once for all runs, which are forked behind it: that takes five seconds of a processor."""
    # Before torch is imported: its thread pools read this once.
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    import torch._dynamo  # every optimizer loads it when it is made

    torch.set_num_threads(1)


def _be_modest() -> None:
    """From the first step on, not while people wait for it."""
    if hasattr(os, "nice"):
        os.nice(NICENESS)


if __name__ == "__main__":
    sys.exit(main())
