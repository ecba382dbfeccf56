"""A real server in a process of its own, a trainer that sends it wire frames over HTTP, and a signed-in browser.

Invariant: every page of every test fails it by a violation of the content security policy or by an error of its script.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from halfscope.wire.codec import encode
from halfscope.wire.messages import (
    AgentFrame,
    Column,
    Declare,
    End,
    Event,
    Facts,
    Layers,
    Points,
    Record,
    Series,
    ServerFrame,
    Start,
    StreamInfo,
)
from numpy.typing import ArrayLike
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.e2e import layered
from tests.helpers import preloaded
from tests.helpers.ports import free_port
from tests.helpers.stream import Stream, from_body, to_body

START_S = 40.0
ROWS_PER_BATCH = 65_536
LAYERS_PER_RECORD = 512
FRAMES_PER_BATCH = 200
SKETCH_EVERY = 50
CHROMIUM = "/usr/bin/chromium"
COLOUR_RULES = ["color-contrast", "link-in-text-block"]
"""What axe looks at in colours; all its other rules say the same in both themes."""
PLACE_RULES = [*COLOUR_RULES, "target-size"]
"""What axe looks at where things lie, most of its time; what lies over a page changes nothing of this behind."""
OVERLAYS = "[role=dialog], [role=alertdialog], [role=menu]"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


# Two busy cores are enough for a correct answer, not for a quick one.
expect.set_options(timeout=45_000)


class Server:
    """`halfscope serve` on a port of its own; can be stopped and started again with the same data."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: preloaded.Forked | None = None

    @property
    def token(self) -> str:
        return (self.home / "token").read_text().strip()

    def start(self, *arguments: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HALFSCOPE_")}
        log = (self.home / "server.log").open("ab")
        with log:
            self._process = preloaded.serving().start(
                ["-m", "halfscope", "serve", "--no-browser", "--port", str(self.port), *arguments],
                # These trainers speak over HTTP and then are silent: that must not turn into lost contact half-way.
                env={**kept, "HALFSCOPE_HOME": str(self.home), "HALFSCOPE_LOST_CONTACT_S": "3600"},
                stdout=log.fileno(),
                stderr=log.fileno(),
            )
        wait_until(self._is_up, START_S, lambda: (self.home / "server.log").read_text())

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(START_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def request(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        """An authorised request; the answer's body."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        request = urllib.request.Request(self.url + path, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return bytes(answer.read())

    def exchange(self, frame: AgentFrame) -> list[ServerFrame]:
        """What an agent without a WebSocket says, and is told."""
        return from_body(self.request("POST", "/api/v1/ingest", to_body(frame), "application/octet-stream"))

    def sign_in_code(self) -> str:
        return str(json.loads(self.request("POST", "/api/v1/session/links"))["code"])

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.home / "server.log").read_text()
        try:
            # Another server may have taken the port meanwhile: then this one is at the next.
            told = json.loads((self.home / "server.json").read_text())
            if told["pid"] != self._process.pid:
                return False
            self.port = int(urllib.parse.urlsplit(told["url"]).port or self.port)
            self.url = f"http://127.0.0.1:{self.port}"
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as answer:
                return int(answer.status) == 200
        except (OSError, ValueError):
            return False


class Trainer:
    """Sends one stream of one run the way an agent does, over `POST /api/v1/ingest`."""

    def __init__(
        self,
        server: Server,
        run_id: str,
        *,
        name: str = "digits-fp16",
        project: str = "digits",
        tags: Sequence[str] = (),
        config: dict[str, Any] | None = None,
        environment: dict[str, Any] | None = None,
        steps_per_s: float = 100.0,
        began_s_ago: float = 300.0,
        rank: int = 0,
        world_size: int = 1,
        local_rank: int = 0,
        host: str = "workstation",
    ) -> None:
        self.server, self.run_id = server, run_id
        self.began_us = int((time.time() - began_s_ago) * 1e6)
        self.step_us = int(1e6 / steps_per_s)
        self._sids: dict[str, int] = {}
        self._pending: list[bytes] = []
        info = StreamInfo(
            rank=rank,
            world_size=world_size,
            local_rank=local_rank,
            host=host,
            pid=os.getpid() + rank,
            started_us=self.began_us,
        )
        self._sender = Stream(run_id, f"{rank:08x}{zlib.crc32(run_id.encode()):08x}", info)
        self._sender.welcomed(*server.exchange(self._sender.hello()))
        if self._sender.next == 0:
            self._record(Start(self.began_us, project, name, config or {}, list(tags), environment or {}))

    def points(
        self,
        name: str,
        steps: ArrayLike,
        values: ArrayLike,
        *,
        unit: str = "",
        kind: str = "gauge",
        reduction: str = "last",
        **labels: str,
    ) -> None:
        """Values of one series."""
        key = f"{name} {labels}"
        if key not in self._sids:
            self._sids[key] = len(self._sids)
            self._record(Declare([Series(self._sids[key], name, unit, kind, reduction, labels)]))
        step = np.asarray(steps, "<i8")
        value = np.broadcast_to(np.asarray(values, "<f8"), step.shape)
        for first in range(0, step.size, ROWS_PER_BATCH):
            part = slice(first, first + ROWS_PER_BATCH)
            times_us = (self.began_us + step[part] * self.step_us).astype("<i8")
            column = Column(self._sids[key], value[part].tobytes())
            self._record(Points(step[part].tobytes(), times_us.tobytes(), [column]))
            if step.size > ROWS_PER_BATCH:
                self.send()

    def advance(self, first: int, last: int, loss: float) -> None:
        """Steps `first` to `last` with what every step brings, sent."""
        steps = np.arange(first, last + 1)
        self.points("loss", steps, loss)
        self.points("time.step_s", steps, 0.01, unit="s")
        self.send()

    def sketch(self, model: layered.Model, steps: Sequence[int], num_steps: int, scale: Callable[[int], float]) -> None:
        """Frames of a model's gradients at these steps of a training of `num_steps`, sent.

        Args:
            scale: of a step; NaN: the training has none, and its gradients have not been through FP16.
        """
        self._record(Layers(model.layers()))
        for count, step in enumerate(steps, 1):
            at = scale(step)
            gradients = model.gradients(step, step / num_steps, None if math.isnan(at) else at)
            named = list(enumerate(gradients.values()))
            for first in range(0, len(named), LAYERS_PER_RECORD):
                part = dict(named[first : first + LAYERS_PER_RECORD])
                self._record(layered.pack(step, self.began_us + step * self.step_us, part, at))
            if count % FRAMES_PER_BATCH == 0:
                self.send()
        self.send()

    def event(self, kind: str, step: int, severity: str = "info", where: Sequence[str] = (), **attributes: Any) -> None:
        self._record(Event(kind, step, self.began_us + step * self.step_us, severity, list(where), attributes))

    def skip(self, step: int, skip_class: str, scale: float, nonfinite: Sequence[str] = ()) -> None:
        """A skip as GradScaler does it: the scale is halved."""
        severity = "warning" if skip_class == "streak" else "info"
        attributes = {"class": skip_class, "scale": scale, "scale_next": scale / 2, "loss_finite": True}
        counts = {"num_nonfinite": len(nonfinite), "num_finite": 14 - len(nonfinite)}
        self.event("skip", step, severity, **attributes, nonfinite=list(nonfinite), **counts)

    def facts(self, **facts: Any) -> None:
        self._record(Facts(self.began_us, facts))

    def end(self, outcome: str, step: int, error_type: str = "", message: str = "") -> None:
        self._record(End(outcome, step, self.began_us + step * self.step_us, error_type, message))

    def send(self) -> None:
        """Sends what is pending as one batch and waits until it is committed."""
        if not self._pending:
            return
        batch, self._pending = self._sender.batch_of(self._pending), []
        (ack,) = self.server.exchange(batch)
        assert getattr(ack, "next", None) == self._sender.next, ack

    def _record(self, record: Record) -> None:
        self._pending.append(encode(record))


# ---- runs that the tests and the screenshots look at ---------------------------------------------------------------


def write_healthy(
    server: Server, run_id: str = "healthy", *, num_steps: int = 6000, name: str = "digits-fp16"
) -> Trainer:
    """An FP16 training as it should be: the scale settles, then one probe skip per growth."""
    trainer = Trainer(
        server,
        run_id,
        name=name,
        tags=["baseline", "night"],
        config={"batch_size": 64, "lr": 0.003, "model": {"layers": 6, "width": 256}},
        environment={"torch": "2.13.0", "python": "3.11.2", "command": "python train.py --amp"},
    )
    steps = np.arange(num_steps)
    noise = np.random.default_rng(7)
    interval = 500
    scale = np.full(num_steps, 65536.0)
    for step, value in ((0, 65536.0), (1, 32768.0), (2, 16384.0)):
        scale[step:] = value / 2
        trainer.skip(step, "settling", value, ["block.0.attn.qkv.weight"])
        trainer.event("scale_backoff", step, scale=value, scale_next=value / 2)
    for step in range(interval, num_steps, interval):
        trainer.event("scale_growth", step - 1, scale=8192.0, scale_next=16384.0)
        scale[step] = 16384.0
        trainer.skip(step, "probe", 16384.0, [layered.WORST])
        trainer.event("scale_backoff", step, scale=16384.0, scale_next=8192.0)
    loss = 2.3 * np.exp(-steps / 1500) + 0.05 + noise.normal(0, 0.02, num_steps).clip(-0.04, 0.4)
    warmup = np.minimum(1, (steps + 1) / 200)
    trainer.points("loss", steps, loss)
    trainer.points("lr", steps, 0.003 * warmup * 0.5 * (1 + np.cos(np.pi * steps / num_steps)))
    trainer.points("amp.scale", steps, scale, kind="state")
    trainer.points("grad.norm", steps, np.exp(noise.normal(-1, 0.35, num_steps)))
    trainer.points("grad.norm_clipped", steps, np.minimum(1.0, np.exp(noise.normal(-1, 0.35, num_steps))))
    trainer.points("time.step_s", steps, 0.0098 + noise.gamma(2, 0.0002, num_steps), unit="s")
    trainer.points("throughput.samples_per_s", steps, 6400 + noise.normal(0, 120, num_steps), unit="samples/s")
    every = steps[::100]
    trainer.points("memory.rss_bytes", every, 1.2e9 + 1e5 * np.sqrt(every), unit="bytes")
    trainer.points("halfscope.cost_share", every, 0.003 + noise.normal(0, 2e-4, every.size), unit="share")
    trainer.points("val/accuracy", steps[::250], 1 - 0.9 * np.exp(-steps[::250] / 900))
    trainer.points("val/loss", steps[::250], 2.2 * np.exp(-steps[::250] / 1400) + 0.08)
    trainer.facts(**_facts("FP16-AMP"))
    sketched = sorted({*range(0, num_steps, SKETCH_EVERY), *range(0, num_steps, interval), 1, 2})
    trainer.sketch(layered.Model(growth=layered.calm), sketched, num_steps, lambda step: float(scale[step]))
    return trainer


def write_troubled(server: Server, run_id: str = "troubled") -> Trainer:
    """An FP16 training whose attention overflows: a streak of skips, then a loss that is NaN."""
    num_steps = 3000
    trainer = Trainer(server, run_id, name="digits-fp16-troubled", tags=["demo"], config={"mask": -1e9})
    steps = np.arange(num_steps)
    noise = np.random.default_rng(3)
    loss = 2.3 * np.exp(-steps / 900) + 0.1 + noise.normal(0, 0.03, num_steps)
    scale = np.full(num_steps, 65536.0)
    layers = [layered.OVERFLOWING, *layered.POISONED_AFTER]
    for at, step in enumerate(range(1200, 1216)):
        value = 65536.0 / 2**at
        scale[step + 1 :] = value / 2
        trainer.skip(step, "streak", value, layers)
    trainer.event(
        "bad_streak", 1202, "warning", layers, first_step=1200, num_skips=3, reason="in_a_row", origin="backward",
        origin_layer=layers[0], nonfinite=layers, finite=["block.0.attn.qkv.weight"], num_nonfinite=3, num_finite=11,
    )  # fmt: skip
    trainer.event("bad_streak_end", 1215, first_step=1200, last_step=1215, num_skips=16)
    loss[2400:2403] = math.nan
    trainer.event("loss_nonfinite", 2400, "critical", value="NaN", caught=False)
    trainer.event("nonfinite_applied", 2400, "critical", layers)
    trainer.points("loss", steps, loss)
    trainer.points("amp.scale", steps, scale, kind="state")
    trainer.points("grad.norm", steps, np.exp(noise.normal(0, 0.6, num_steps)))
    trainer.points("throughput.samples_per_s", steps, 900 + noise.normal(0, 30, num_steps), unit="samples/s")
    trainer.facts(**_facts("FP16-AMP"), demo=True)
    sketched = sorted({*range(0, num_steps, SKETCH_EVERY), *range(1200, 1216)})
    model = layered.Model(growth=layered.overflowing, poisoned=range(1200, 1216))
    trainer.sketch(model, sketched, num_steps, lambda step: float(scale[step]))
    trainer.end("exception", num_steps - 1, "FloatingPointError", "loss is NaN at step 2,400")
    trainer.send()
    return trainer


def write_plain(
    server: Server, run_id: str, name: str, precision: str, *, num_steps: int = 2000, project: str = "digits"
) -> Trainer:
    """A finished training without a scaler."""
    trainer = Trainer(server, run_id, name=name, project=project, began_s_ago=86_400)
    steps = np.arange(num_steps)
    noise = np.random.default_rng(len(name))
    trainer.points("loss", steps, 2.3 * np.exp(-steps / 700) + 0.05 + noise.normal(0, 0.02, num_steps))
    trainer.points("grad.norm", steps, np.exp(noise.normal(-1, 0.3, num_steps)))
    trainer.facts(**_facts(precision))
    trainer.end("finished", num_steps - 1)
    trainer.send()
    return trainer


def write_flushed(server: Server, run_id: str = "flushed", *, num_steps: int = 2000) -> Trainer:
    """An FP16 training in which one layer sinks below what FP16 holds, while its scaler sees nothing wrong."""
    trainer = Trainer(server, run_id, name="digits-fp16-flushed", steps_per_s=50, began_s_ago=num_steps / 50)
    steps = np.arange(num_steps)
    noise = np.random.default_rng(11)
    trainer.points("loss", steps, 2.3 * np.exp(-steps / 900) + 0.4 + noise.normal(0, 0.03, num_steps))
    trainer.points("amp.scale", steps, 1024.0, kind="state")
    trainer.points("grad.norm", steps, np.exp(noise.normal(-2, 0.3, num_steps)))
    trainer.facts(**_facts("FP16-AMP"))
    model = layered.Model(growth=layered.flushing)
    trainer.sketch(model, range(0, num_steps, SKETCH_EVERY), num_steps, lambda step: 1024.0)
    return trainer


def write_one_frame(server: Server, run_id: str = "oneframe") -> Trainer:
    """An FP32 training of which one step was sketched so far: underflow can only be predicted."""
    trainer = Trainer(server, run_id, name="digits-fp32-begun", began_s_ago=30)
    trainer.advance(0, 60, 2.0)
    trainer.facts(**_facts("FP32"))
    trainer.sketch(
        layered.Model(growth=lambda name, place: layered.calm(name, place) - 16), [50], 60, lambda step: math.nan
    )
    return trainer


def write_many_frames(server: Server, run_id: str = "manyframes", *, num_frames: int = 10_000) -> Trainer:
    """A long training, sketched every 10 steps."""
    num_steps = num_frames * 10
    trainer = Trainer(server, run_id, name="long-fp16", project="long", steps_per_s=1000, began_s_ago=num_steps / 1000)
    trainer.points("loss", np.arange(num_steps), 0.5)
    trainer.points("amp.scale", np.arange(num_steps), 8192.0, kind="state")
    trainer.facts(**_facts("FP16-AMP"))
    model = layered.Model(names=(layered.SPARSE, layered.WORST, layered.OVERFLOWING), growth=layered.flushing)
    trainer.sketch(model, range(0, num_steps, 10), num_steps, lambda step: 8192.0)
    return trainer


def write_all_nan(server: Server, run_id: str = "allnan") -> Trainer:
    """A training in which nothing was ever finite."""
    trainer = Trainer(server, run_id, name="bf16-all-nan", project="speech")
    steps = np.arange(400)
    for name in ("loss", "grad.norm", "grad.norm_clipped", "val/loss"):
        trainer.points(name, steps, math.nan)
    for step in steps.tolist():
        trainer.event("loss_nonfinite", step, "critical", value="NaN", caught=False)
        trainer.event("nonfinite_applied", step, "critical", ["encoder.0.weight"])
    trainer.facts(**_facts("BF16-AMP"))
    trainer.send()
    return trainer


def write_waiting(server: Server, run_id: str = "waiting") -> Trainer:
    """A training that was attached and has made no step."""
    trainer = Trainer(server, run_id, name="gpt-warmup", project="speech", began_s_ago=20)
    trainer.facts(**_facts("FP16-AMP"))
    trainer.send()
    return trainer


def write_million(server: Server, run_id: str, *, applied_at: int | None = None) -> Trainer:
    """A million steps with a probe skip per 2,000; with one NaN applied, where asked for."""
    num_steps = 1_000_000
    trainer = Trainer(server, run_id, name=run_id, project="long", steps_per_s=1000, began_s_ago=1200)
    trainer.facts(**_facts("FP16-AMP"))
    for step in range(2000, num_steps, 2000):
        trainer.skip(step, "probe", 65536.0)
    if applied_at is not None:
        trainer.event("nonfinite_applied", applied_at, "critical", ["block.3.mlp.fc2"])
    trainer.send()
    trainer.points("loss", np.arange(num_steps), 0.25)
    trainer.end("finished", num_steps - 1)
    trainer.send()
    return trainer


def _facts(precision: str) -> dict[str, Any]:
    scaler = {"name": "scaler", "class": "GradScaler", "enabled": True, "init_scale": 65536.0, "growth_factor": 2.0}
    return {
        "precision": precision,
        "device": "cpu",
        "scalers": [{**scaler, "backoff_factor": 0.5, "growth_interval": 500}] if precision.startswith("FP16") else [],
        "optimizers": [{"name": "optimizer", "class": "AdamW", "fused": False, "foreach": True, "num_parameters": 38}],
        "parameters": {"num_tensors": 38, "num_elements": 1_240_000, "num_trainable": 1_240_000, "names": []},
        "memory": {"parameter_bytes": 4_960_000, "gradient_bytes": 4_960_000, "optimizer_state_bytes": 9_920_000},
    }


# ---- fixtures ----------------------------------------------------------------------------------------------------


def wait_until(condition: Callable[[], bool], timeout_s: float, report: Callable[[], str] = lambda: "") -> None:
    """Waits for a condition of the outside world; a browser's own state is waited for by playwright."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout_s} s {report()}"
        time.sleep(0.05)


@contextmanager
def serving(home: Path, *arguments: str) -> Iterator[Server]:
    server = Server(home)
    server.start(*arguments)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def trainers() -> Any:
    """This module: writers of runs for tests that need their own."""
    return sys.modules[__name__]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with one run of each kind, for the tests that change nothing others look at."""
    with serving(tmp_path_factory.mktemp("home")) as running:
        write_plain(running, "fp32", "digits-fp32", "FP32")
        write_plain(running, "bf16", "digits-bf16", "BF16-AMP")
        write_all_nan(running)
        write_troubled(running)
        write_healthy(running)
        yield running


@pytest.fixture(scope="session")
def busy_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that write, rename and delete; each has runs and projects of its own names."""
    with serving(tmp_path_factory.mktemp("busy")) as running:
        yield running


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """An empty server of this test's own."""
    with serving(tmp_path) as running:
        yield running


@pytest.fixture(scope="session")
def browser_type_launch_args(browser_type_launch_args: dict[str, Any]) -> dict[str, Any]:
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
    return {**browser_type_launch_args, "executable_path": CHROMIUM, "args": ["--no-sandbox", "--disable-gpu", *quiet]}


def watch_for_errors(context: BrowserContext) -> list[str]:
    """Everything that no page may do, as it happens."""
    problems: list[str] = []
    context.add_init_script(
        "document.addEventListener('securitypolicyviolation',"
        " (event) => console.error(`CSP ${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`))"
    )
    context.on("weberror", lambda error: problems.append(str(error.error)))
    context.on(
        "console",
        lambda message: problems.append(message.text) if re.match(r"CSP|Refused|Warning:", message.text) else None,
    )
    return problems


def sign_in(context: BrowserContext, server: Server) -> None:
    answer = context.request.post(f"{server.url}/api/v1/session", data={"code": server.sign_in_code()})
    assert answer.ok, answer.text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A browser context, and what its pages did that no page may do."""

    key: str
    context: BrowserContext
    problems: list[str]
    cookies: set[str]


class Windows:
    """Signed-in contexts that tests hand on to each other, cleaned.

    In a new one the browser fetches, compiles and warms up the app again, which is half of what a page costs. So one
    page of the server's stays open in each, which keeps its process. Who has signed out gives nothing back.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._free: dict[str, list[Window]] = {}

    def take(self, server: Server, options: dict[str, Any], *, signed_in: bool) -> Window:
        key = f"{server.home} {sorted(options.items())}"
        if signed_in and (kept := self._free.get(key)):
            return kept.pop()
        context = self._browser.new_context(**options)
        problems = watch_for_errors(context)
        if signed_in:
            sign_in(context, server)
            context.new_page().goto(f"{server.url}/healthz")
        return Window(key=key, context=context, problems=problems, cookies=_names(context) if signed_in else set())

    def give_back(self, window: Window) -> list[str]:
        """What its pages did that no page may do."""
        first, *others = window.context.pages
        for page in others:
            page.unroute_all()
            page.close()
        seen = window.problems.copy()
        window.problems.clear()
        if window.cookies and _names(window.context) == window.cookies:
            first.evaluate("localStorage.clear(); sessionStorage.clear()")
            self._free.setdefault(window.key, []).append(window)
        else:
            window.context.close()
        return seen


def _names(context: BrowserContext) -> set[str]:
    return {str(cookie.get("name")) for cookie in context.cookies()}


@pytest.fixture(scope="session")
def windows(browser: Browser) -> Windows:
    """Of this process's browser."""
    return Windows(browser)


@pytest.fixture
def open_page(windows: Windows) -> Iterator[Callable[..., Page]]:
    """Opens a page of a server, signed in: `open_page(server, "/runs/healthy", width=390)`."""
    opened: list[Window] = []

    def open_it(
        server: Server,
        path: str = "/",
        *,
        width: int = 1440,
        height: int = 900,
        color_scheme: Literal["light", "dark"] = "light",
        signed_in: bool = True,
        **options: Any,
    ) -> Page:
        window = windows.take(server, options, signed_in=signed_in)
        opened.append(window)
        page = window.context.new_page()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=color_scheme, reduced_motion="reduce")
        page.set_default_timeout(45_000)
        page.goto(server.url + path)
        return page

    yield open_it
    assert [problem for window in opened for problem in windows.give_back(window)] == []


@pytest.fixture(scope="session")
def check_axe() -> Callable[..., None]:
    """Fails on any breach of WCAG 2.2 AA that axe finds on the page as it is now.

    `colours_alone`: for a page that was checked in the other theme already. `checked_without_overlay`: for one that was
    checked when the menu or dialog was not open.
    """
    axe = Axe()

    def run(page: Page, only: dict[str, Any], context: str | None = None, **more: Any) -> list[dict[str, Any]]:
        options = {"runOnly": only, "resultTypes": ["violations"], **more}
        found: list[dict[str, Any]] = axe.run(page, context, options).response["violations"]
        return found

    def check(page: Page, *, colours_alone: bool = False, checked_without_overlay: bool = False) -> None:
        only = {"type": "rule", "values": COLOUR_RULES} if colours_alone else {"type": "tag", "values": WCAG}
        if not checked_without_overlay or page.locator(OVERLAYS).count() == 0:
            found = run(page, only)
        elif colours_alone:
            found = run(page, only, OVERLAYS)
        else:
            found = run(page, only, rules={rule: {"enabled": False} for rule in PLACE_RULES})
            found += run(page, {"type": "rule", "values": PLACE_RULES}, OVERLAYS)
        lines = [f"{v['id']}: {v['help']}: " + " | ".join(node["html"][:160] for node in v["nodes"][:4]) for v in found]
        assert lines == [], "\n".join(lines)

    return check
