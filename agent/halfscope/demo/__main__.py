"""`python -m halfscope.demo`: trains one run of the demo and prints JSON progress lines.

Owns arguments, niceness and output. Invariant: standard output holds JSON lines only, each flushed at once.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict

from halfscope.demo.trainings import RANKS_TRAININGS, TRAININGS, find

NICENESS = 10
"""Server and browser come first on a small machine, so that the picture stays fluent while five trainings run."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m halfscope.demo", description="Train one run of the halfscope demo."
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--list", action="store_true", help="print the names of the runs and stop")
    which.add_argument("--run", metavar="NAME", help="the run to train")
    parser.add_argument("--ranks", action="store_true", help="with --list: the runs of several ranks")
    parser.add_argument("--server", metavar="URL", help="address of the halfscope server; default: as for any training")
    parser.add_argument("--steps", type=int, metavar="N", help="train N steps instead of the run's own number")
    parser.add_argument("--project", default="halfscope-demo", help="project the run appears under")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(training.name for training in (RANKS_TRAININGS if options.ranks else TRAININGS)))
        return 0
    try:
        training = find(options.run)
    except ValueError as error:
        parser.error(str(error))
    if options.steps is not None and options.steps < 1:
        parser.error(f"--steps is {options.steps}; expected at least 1")
    if training.num_ranks > 1 and "RANK" not in os.environ:
        return _launch(training.num_ranks, sys.argv[1:] if arguments is None else arguments)
    _be_modest()
    from halfscope.demo.train import train

    try:
        for progress in train(training, num_steps=options.steps, server=options.server, project=options.project):
            # NaN is written as Python reads it; only `halfscope demo` and people read these lines.
            if os.environ.get("RANK", "0") == "0":
                print(json.dumps(asdict(progress)), flush=True)
    except ImportError as error:
        print(f"halfscope demo: {error}", file=sys.stderr)
        return 1
    return 0


def _launch(num_ranks: int, arguments: Sequence[str]) -> int:
    """Becomes torchrun, which starts this program once per rank."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks), "-m"]
    # Behind the dashes nothing is torchrun's: it would take --run for an abbreviation of its own.
    os.execv(sys.executable, [sys.executable, *torchrun, "--", "halfscope.demo", *arguments])


def _be_modest() -> None:
    """One thread and a low priority: five of these share a machine with the server and a browser."""
    # Before torch is imported: its thread pools read this once.
    os.environ["OMP_NUM_THREADS"] = "1"
    if hasattr(os, "nice"):
        os.nice(NICENESS)
    import torch

    torch.set_num_threads(1)


if __name__ == "__main__":
    sys.exit(main())
