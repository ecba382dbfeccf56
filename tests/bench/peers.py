"""`make bench-peers`: what watching costs with halfscope and with others, in turns within one run; and what each still
shows of a thousand spikes of one step.

    python -m tests.bench.peers [--only GLOB] [--quick]

The others are installed into an environment of their own (scripts/apart.py), with this one's torch, and measured by
tests.bench.peers_inside there; halfscope's server runs in a process of its own, here. Prints `name value unit` lines
and, last, a table for each training as comments.
Invariant: whatever a tool writes lies in a folder that is deleted, and none may talk to another machine.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench.intervals import chosen_interval
from tests.bench.report import Measurement, error, machine_line, say
from tests.bench.server_process import serving
from tests.helpers.keeper import keep

ROOT = Path(__file__).resolve().parents[2]
REQUIREMENTS = (
    *("tensorboard>=2.20", "wandb>=0.26", "trackio>=0.40", "mlflow>=3.14", "transformers>=5"),
    "mixed-precision-nanny>=0.1",
)
BUDGETS_S = {"mlp": 110.0, "gpt": 120.0, "cnn": 140.0}
"""Of all rounds of a training; a round of `cnn` takes some 15 s."""
SPIKES = "spikes"
NANNY_EVERY = 100
LEFT_S = 900.0
"""What a measurement may take beyond its rounds before it is given up: loading the tools, on a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one way of watching costs one training."""

    name: str
    ratio: float
    ratio_error: float
    cpu_ratio: float
    extra_us: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.peers", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", metavar="GLOB", default="*", help=f"of {', '.join([*BUDGETS_S, SPIKES])}")
    parser.add_argument("--quick", action="store_true", help="one round each: for a look, not for a record")
    options = parser.parse_args(arguments)
    chosen = [name for name in (*BUDGETS_S, SPIKES) if fnmatch.fnmatchcase(name, options.only)]
    if not chosen:
        parser.error(f"nothing is called {options.only!r}; there are {', '.join([*BUDGETS_S, SPIKES])}")
    print(machine_line(), flush=True)
    python = _environment()
    summary: list[str] = []
    budgets = {name: 0.0 if options.quick else BUDGETS_S[name] for name in chosen if name in BUDGETS_S}
    for name, found in _costs(python, budgets).items() if budgets else ():
        rows = rows_of(found)
        _print(measurements(name, found, rows))
        summary += table(name, found, rows)
    if SPIKES in chosen:
        from tests.bench import peers_spikes

        lines = _print(peers_spikes.measure(lambda folder: ask(python, folder, SPIKES), options.quick))
        summary += peers_spikes.table(lines)
    print("\n".join(["# summary", *summary]))
    return 0


def _print(lines: Iterable[Measurement]) -> list[Measurement]:
    said = list(lines)
    print("\n".join(line.line() for line in said), flush=True)
    return said


def _environment() -> str:
    say("the tools, in an environment of their own (build/apart/peers)")
    command = [sys.executable, str(ROOT / "scripts" / "apart.py"), str(ROOT / "build" / "apart" / "peers")]
    made = subprocess.run([*command, *REQUIREMENTS], stdout=subprocess.PIPE, text=True, check=False)
    if made.returncode != 0:
        sys.exit(made.returncode)
    return made.stdout.strip()


def _costs(python: str, budgets: Mapping[str, float]) -> dict[str, Any]:
    """By training. All in one process: to load the tools takes as long as some rounds."""
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder, serving() as server:
        say(f"{', '.join(budgets)}: about {sum(budgets.values()):.0f} s of rounds")
        variables = {"HALFSCOPE_SERVER": server.url, "HALFSCOPE_TOKEN": server.token, "HALFSCOPE_HOME": folder}
        asked = [f"{name}={budget_s}" for name, budget_s in budgets.items()]
        found = ask(python, Path(folder), "cost", *asked, limit_s=sum(budgets.values()), **variables)
    return dict(found)


def ask(python: str, folder: Path, what: str, *arguments: str, limit_s: float = 300.0, **variables: str) -> Any:
    """What tests.bench.peers_inside finds, in a process whose home is the folder.

    Raises:
        RuntimeError: it ended otherwise, or not in time; with the last that it said.
    """
    log_path = folder / "said.txt"
    with log_path.open("w") as log:
        command = [python, "-m", "tests.bench.peers_inside", str(folder), what, *arguments]
        environment = {**quiet(folder), **variables}
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False,
                timeout=limit_s + LEFT_S,
            ).returncode  # fmt: skip
        except subprocess.TimeoutExpired:
            done = -1
    found = folder / "found.json"
    if done != 0 or not found.exists():
        raise RuntimeError(f"measuring ended with {done}; it said:\n{log_path.read_text(errors='replace')[-3000:]}")
    return json.loads(found.read_text(encoding="utf-8"))


def quiet(folder: Path) -> dict[str, str]:
    """An environment in which the tools write below a folder, and neither report home nor look for updates."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HALFSCOPE_", "WANDB_", "HF_"))}
    nowhere = "http://127.0.0.1:9"
    return kept | {
        "HOME": str(folder),
        "TMPDIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "HTTP_PROXY": nowhere, "HTTPS_PROXY": nowhere, "ALL_PROXY": nowhere, "NO_PROXY": "127.0.0.1,localhost",
        "DO_NOT_TRACK": "true",
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false",
        "HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "GRADIO_ANALYTICS_ENABLED": "False",
        "TRACKIO_DIR": str(folder / "trackio-home"),
        "MLFLOW_DISABLE_TELEMETRY": "true",
    }  # fmt: skip


# ---- what is made of it ------------------------------------------------------------------------


def rows_of(found: Mapping[str, Any]) -> list[Row]:
    """Cheapest first. Tools that look at some steps alone are put together from both kinds of steps: every hundredth
    for mixed-precision-nanny, for halfscope as often as its budget chooses at these costs."""
    shares = {name: [tuple(pair) for pair in pairs] for name, pairs in found["shares"].items()}
    for name, rare, rest, every in (
        ("nanny", "nanny_traced", "nanny_idle", NANNY_EVERY),
        ("halfscope", "halfscope_sketched", "halfscope_unsketched", sketch_every(found)),
    ):
        if rare in shares and rest in shares:
            both = zip(shares[rare], shares[rest], strict=True)
            shares[name] = [(low + (high - low) / every, c + (d - c) / every) for (high, d), (low, c) in both]
    shares["nanny_every_step"] = shares.pop("nanny_traced", [])
    shares["halfscope_every_step"] = shares.pop("halfscope_sketched", [])
    for part in ("nanny_idle", "halfscope_unsketched"):
        shares.pop(part, None)
    rows = [_row(name, pairs, found["step_s"]) for name, pairs in shares.items() if pairs]
    return sorted(rows, key=lambda row: row.ratio)


def sketch_every(found: Mapping[str, Any]) -> int:
    """The interval that the budget of halfscope chooses where sketches cost what they were measured to cost."""
    medians = [
        statistics.median(pair[1] for pair in found["shares"].get(name, [[0.0, 0.0]]))
        for name in ("halfscope_sketched", "halfscope_unsketched")
    ]
    return chosen_interval(found["step_s"], max(0.0, (medians[0] - medians[1]) * found["step_s"]))


def _row(name: str, pairs: Sequence[tuple[float, ...]], step_s: float) -> Row:
    wall, cpu = ([pair[at] for pair in pairs] for at in (0, 1))
    share = statistics.median(wall)
    return Row(
        name=name,
        ratio=1 + share,
        ratio_error=error(wall),
        cpu_ratio=1 + statistics.median(cpu),
        extra_us=share * step_s * 1e6,
    )


def measurements(workload: str, found: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[Measurement]:
    """One line for each number."""
    prefix = f"peers.{workload}"
    yield Measurement(name=f"{prefix}.unwatched.step_ms", value=found["step_s"] * 1e3, unit="ms")
    yield Measurement(name=f"{prefix}.halfscope.sketch_every", value=float(sketch_every(found)), unit="steps")
    for row in rows:
        for what in ("ratio", "ratio_error", "cpu_ratio"):
            yield Measurement(name=f"{prefix}.{row.name}.{what}", value=getattr(row, what), unit="ratio")
        yield Measurement(name=f"{prefix}.{row.name}.extra_us", value=row.extra_us, unit="us")


def table(workload: str, found: Mapping[str, Any], rows: Sequence[Row]) -> list[str]:
    """As comments, cheapest first; and which tools could not be used."""
    num_rounds = max((len(pairs) for pairs in found["shares"].values()), default=0)
    lines = [f"# {workload}, {found['step_s'] * 1e3:.3g} ms a step, {num_rounds} rounds: step time over unwatched"]
    lines += [
        f"#   {row.name:26} {row.ratio:8.3f} ± {row.ratio_error:.3f}   {row.extra_us:10.0f} us a step" for row in rows
    ]
    return lines + [f"#   {name:26} not measured: {said}" for name, said in found["failed"].items()]


if __name__ == "__main__":
    keep()
    sys.exit(main())
