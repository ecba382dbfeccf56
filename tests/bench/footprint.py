"""What the agent takes besides time a step: memory of the training process and of the sender, and of `run.log`.

Measured in a process of its own, which has trained unwatched before it loads halfscope.
Invariant: growth is between two states of one process, each after the same number of steps.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench.report import Bench, Measurement
from tests.bench.server_process import serving

NUM_STEPS = 3000
NUM_SCALARS = 20
NAMES = ("agent.memory_mib", "agent.sender_memory_mib", "agent.log20.p50_us", "agent.log20.p99_us")
ROOT = Path(__file__).resolve().parents[2]


def _measure(quick: bool) -> Iterator[Measurement]:
    num_steps = 200 if quick else NUM_STEPS
    with serving() as server, tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        environment = {**os.environ, "HALFSCOPE_TOKEN": server.token}
        command = [sys.executable, "-m", "tests.bench.footprint", server.url, folder, str(num_steps)]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    for name in NAMES:
        yield Measurement(name=name, value=found[name], unit="us" if name.endswith("_us") else "MiB")


def main(url: str, folder: str, num_steps: int) -> dict[str, float]:
    """In the training process: every number by its name."""
    import torch

    from tests.bench import workloads

    torch.set_num_threads(1)
    work = workloads.mlp()
    for _ in range(num_steps):
        work.update()
    before_mib = _resident_mib("self")
    import halfscope
    from halfscope.send import status

    run = halfscope.watch(work.model, work.optimizer, project="bench", server=url, directory=folder)
    scalars = {f"metric/{at}": float(at) for at in range(NUM_SCALARS)}
    took_us: list[float] = []
    for _ in range(num_steps):
        run.step(loss=work.update(), samples=work.samples)
        began_ns = time.perf_counter_ns()
        run.log(scalars)
        took_us.append((time.perf_counter_ns() - began_ns) / 1e3)
    grown_mib, sender = _resident_mib("self") - before_mib, status(Path(folder))
    found = [grown_mib, _resident_mib(str(sender.pid)), statistics.median(took_us), _quantile(took_us, 0.99)]
    run.finish()
    return dict(zip(NAMES, found, strict=True))


def _resident_mib(process: str) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))]


BENCHES = [Bench(names=NAMES, run=_measure)]

if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
