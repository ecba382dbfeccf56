"""`halfscope demo`: a server, the demo's trainings beside it, and where they stand.

Owns the processes and the terminal; the trainings themselves are `python -m halfscope.demo`. Must not import torch or
the app: the server is the ordinary `halfscope serve`, in a process of its own. Invariant: whatever ends the command,
all its processes end too.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from halfscope_server.cli import client, home
from halfscope_server.cli.children import Children
from halfscope_server.cli.progress import Painter, RunProgress
from halfscope_server.settings import Settings, child_environment

SERVER_START_S = 180.0
"""Where five other things want the processor a minute is not enough; one that has died is noticed at once."""
TRAINER = (sys.executable, "-m", "halfscope.demo")
"""One process loads torch, while the server starts, and trains all runs in forks of itself: torch is loaded once."""
HANDOVER_S = 10.0
"""How long a run's last steps may take from the trainer to the server before what is recorded is printed without
them."""


class DemoError(Exception):
    """The demo cannot go on; the text says why and what to do."""


def run(
    settings: Settings,
    *,
    say: Callable[[str], None],
    headless: bool,
    open_browser: bool,
    temporary: bool,
    steps: int | None,
    ranks: bool = False,
) -> None:
    """Runs all trainings of the demo at once and shows where they stand.

    Args:
        settings: of the server to start; one that runs in the same home already is used as it is.
        say: prints one line.
        headless: end when the trainings have, and print what was recorded; else stay until Ctrl-C.
        open_browser: also open the sign-in link.
        temporary: keep everything in a folder that is deleted in the end.
        steps: steps per training instead of their own number.
        ranks: the training of several ranks instead of those of one process each.

    Raises:
        DemoError: the server did not start, or a training failed.
    """
    with _home(settings, temporary=temporary) as settings, Children() as children:
        names = _names(ranks=ranks)
        trainer = _Trainer(settings, children, names, steps=steps)
        target, server = _server(settings, children)
        link = client.get_json(target, "/api/v1/session/links", method="POST")["url"]
        _watch_runs(target)
        say(f"Watch live (one use, ten minutes): {link}")
        say("Numbers are real, speed is not what a GPU gives: everything trains on this CPU.")
        say("Ctrl-C stops everything.")
        if open_browser and not headless:
            webbrowser.open(link)
        if failed := trainer.train(target.url):
            raise DemoError("\n".join(failed))
        if headless:
            for line in recorded(target, names):
                say(line)
            return
        say("All trainings are done. The pages stay until Ctrl-C; another link: halfscope open")
        if server is None:
            signal.pause()
        else:
            raise DemoError(f"the server ended with code {server.wait()}")


def _watch_runs(target: client.Target) -> None:
    """Makes rules of the recommended presets, so that the troubled training fires alerts; a server that has rules keeps
    to those."""
    if not client.get_json(target, "/api/v1/rules")["rules"]:
        client.get_json(target, "/api/v1/rules/presets", method="POST", body={"ids": []})


@contextmanager
def _home(settings: Settings, *, temporary: bool) -> Iterator[Settings]:
    if not temporary:
        yield settings
        return
    with tempfile.TemporaryDirectory(prefix="halfscope-demo-") as folder:
        yield replace(settings, home=Path(folder), journals=None, database_url="")


def _names(*, ranks: bool) -> list[str]:
    listed = subprocess.run(
        [*TRAINER, "--list", *(["--ranks"] if ranks else [])], capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        raise DemoError(f"the demo's trainings cannot start: {_last_line(listed.stderr)}")
    return listed.stdout.split()


def _server(settings: Settings, children: Children) -> tuple[client.Target, subprocess.Popen[str] | None]:
    """The server of this home: the one that runs, or a new one with its process."""
    process = None
    running = home.running_server(settings)
    if running is None:
        log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the process that writes it
        process = children.start(
            [sys.executable, "-m", "halfscope", "serve", "--no-browser"],
            environment=child_environment(settings),
            stdout=log,
            stderr=subprocess.STDOUT,
            is_server=True,
        )
        deadline = time.monotonic() + SERVER_START_S
        while (running := home.running_server(settings)) is None or running.pid != process.pid:
            if process.poll() is not None or time.monotonic() > deadline:
                log.seek(0)
                raise DemoError(f"the server did not start: {_last_line(log.read())}")
            time.sleep(0.05)
    return client.find(replace(settings, token=""), running.url), process


class _Trainer:
    """The process that trains all runs; it begins when it is told where the server is."""

    def __init__(self, settings: Settings, children: Children, names: list[str], *, steps: int | None) -> None:
        self._runs = {name: RunProgress(name=name) for name in names}
        self._errors = dict.fromkeys(names, "")
        self._log = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed when all have ended
        chosen = [argument for name in names for argument in ("--run", name)]
        self._process = children.start(
            [*TRAINER, *chosen, "--server", "-", *(["--steps", str(steps)] if steps else [])],
            # Five trainings share this machine's processors: more threads in each would only make them wait for one
            # another.
            environment={**child_environment(settings), "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def train(self, url: str) -> list[str]:
        """Trains to the end, and shows meanwhile where each run stands; returns a line for each that failed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it has died: its output says so
            self._process.stdin.write(f"{url}\n")
            self._process.stdin.flush()
        painter = Painter(out=sys.stdout, is_terminal=sys.stdout.isatty())
        painter.paint(self._runs.values())
        with self._log:
            for line in self._process.stdout:
                if self._note(line):
                    painter.paint(self._runs.values())
            code = self._process.wait()
            for name, run in self._runs.items():
                if run.state not in ("done", "failed"):
                    self._end(name, code)
        painter.paint(self._runs.values())
        return [f"{name} {self._errors[name]}" for name, run in self._runs.items() if run.state == "failed"]

    def _note(self, line: str) -> bool:
        """Takes in what a run says of itself. Other output is not for us."""
        try:
            told: Mapping[str, Any] = json.loads(line)
            run = self._runs[told["run"]]
        except (ValueError, TypeError, KeyError):
            return False
        if "code" in told:
            self._end(run.name, told["code"])
        elif "error" in told:
            self._errors[run.name] = told["error"]
        else:
            run.state = "training"
            run.step, run.total = int(told["step"]), int(told["total"])
            run.loss, run.accuracy = told["loss"], told["accuracy"]
        return True

    def _end(self, name: str, code: int) -> None:
        self._runs[name].state = "done" if code == 0 else "failed"
        self._log.seek(0)
        self._errors[name] = f"ended with code {code}: {self._errors[name] or _last_line(self._log.read())}"


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def recorded(target: client.Target, names: list[str]) -> list[str]:
    """What the server holds of these runs, one line each: precision, steps, loss, scale, skips by class, verdict."""
    deadline = time.monotonic() + HANDOVER_S
    while True:
        found = client.get_json(target, "/api/v1/runs?tag=demo&strip_bins=10")["runs"]
        # The newest of each name: a demo may have run here before.
        newest = {run["name"]: run for run in sorted(found, key=lambda run: run["created_us"]) if run["name"] in names}
        is_whole = len(newest) == len(names) and all(run["state"] not in ("waiting", "live") for run in newest.values())
        if is_whole or time.monotonic() > deadline:
            return ["Recorded:", *(_recorded_line(newest[name]) for name in names if name in newest)]
        time.sleep(0.1)


def _recorded_line(run: Mapping[str, Any]) -> str:
    skips = run["skips"]
    classes = ", ".join(f"{skips[kind]} {kind}" for kind in ("settling", "probe", "single", "streak") if skips[kind])
    parts = [
        f"{run['name']:<18} {run['precision'] or '–':<9} {run['state_text']}",
        f"{(run['last_step'] or 0) + 1 - (run['first_step'] or 0):,} steps",
        f"loss {_figure(run['loss'])}",
    ]
    if run["scale"] is not None:
        parts.append(f"scale {_figure(run['scale'])}")
    parts.append(f"{skips['total']} skips" + (f" ({classes})" if classes else ""))
    parts.append(" · ".join([run["health"]["word"], *run["health"]["reasons"][:1]]))
    return "  ".join(parts)


def _figure(value: float | str | None) -> str:
    if not isinstance(value, float | int):
        return value or "–"
    return f"{int(value):,}" if value >= 1 and value == int(value) else f"{value:.4g}"
