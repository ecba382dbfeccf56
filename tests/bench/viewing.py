"""From a step to the screen: eight trainings of 500 layers with sketches every other second, and twenty viewers.

The server is a real `halfscope serve` on SQLite; the trainings are those of `tests.bench.watched_senders`, in a process
of their own. One viewer is Chromium with a run's page; a step is seen in the first frame painted after the loss chart
was drawn with it, or with a later one. The others take the same messages over a websocket and draw nothing: twenty
browsers would measure themselves. All is on one machine with one clock. The floor is the same of one training and that
one viewer.
Invariant: every step counts that was complete while all were watching, also one that was passed over by a newer one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from halfscope.config import new_run_id
from playwright.sync_api import Page, sync_playwright
from websockets.asyncio.client import connect

from tests.bench.ingest import Popen, begin, prepared, processor_s, quantile
from tests.bench.report import Bench, Measurement, say
from tests.bench.server_process import Server, serving
from tests.bench.watched_senders import WatchedPlan

TRAININGS = "tests.bench.watched_senders"
PANELS = ("loss", "norm", "step-time", "layers-heatmap")
STEPS_PER_S = 10.0
CHROMIUM = "/usr/bin/chromium"
WARM_S = 5.0
"""Of a training, before its steps count."""
_LAST_STEP = re.compile(r'"last_step":(\d+)')
WATCH_CHART = """() => {
  window.seen = [];
  let newest = -1;
  const look = () => {
    const plot = document.querySelector('#panel-loss .js-plotly-plot');
    const ends = (plot?._fullData ?? []).map((line) => (line.x?.length ? Number(line.x[line.x.length - 1]) : -1));
    const step = Math.max(-1, ...ends);
    if (step > newest) {
      newest = step;
      requestAnimationFrame(() => requestAnimationFrame(() => window.seen.push([Date.now(), step])));
    }
    requestAnimationFrame(look);
  };
  look();
}"""

Seen = list[tuple[float, int]]
"""Time in milliseconds since the epoch, newest step seen then; ascending."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watched:
    """What came of one round."""

    shown_ms: list[float]
    """Of each step, until Chromium showed it; ascending."""
    told_ms: list[float]
    """Until another viewer was told, likewise."""
    cores: dict[str, float]
    """Used meanwhile, by whom."""


def _measure(quick: bool) -> Iterator[Measurement]:
    num_layers = 50 if quick else 500
    many = _watched(num_runs=2, num_viewers=3, num_layers=num_layers, seconds=8.0) if quick else _watched()
    alone = _watched(num_runs=1, num_viewers=1, num_layers=num_layers, seconds=8.0 if quick else 20.0)
    yield Measurement(name="server.step_to_pixel_p50_ms", value=quantile(many.shown_ms, 0.50), unit="ms")
    yield Measurement(name="server.step_to_pixel_p95_ms", value=quantile(many.shown_ms, 0.95), unit="ms")
    yield Measurement(name="server.step_to_viewer_p95_ms", value=quantile(many.told_ms, 0.95), unit="ms")
    yield Measurement(name="server.step_to_pixel.floor_p50_ms", value=quantile(alone.shown_ms, 0.50), unit="ms")
    yield Measurement(name="server.step_to_pixel.floor_p95_ms", value=quantile(alone.shown_ms, 0.95), unit="ms")
    for name, cores in many.cores.items():
        yield Measurement(name=f"server.step_to_pixel.{name}_cores", value=cores, unit="cores")


def _watched(*, num_runs: int = 8, num_viewers: int = 20, num_layers: int = 500, seconds: float = 40.0) -> _Watched:
    say(f"server.step_to_pixel: {num_runs} x {num_layers} layers and {num_viewers} viewers for {seconds:g} s")
    with serving() as server:
        plan = WatchedPlan(
            url=server.url,
            token=server.token,
            runs=[new_run_id() for _ in range(num_runs)],
            series=20,
            layers=num_layers,
            steps_per_s=STEPS_PER_S,
            sketch_s=2.0,
            seconds=seconds,
        )
        chosen = [plan.runs[at % num_runs] for at in range(num_viewers)]
        with prepared([plan], TRAININGS) as (process,), _page(server) as page, _Viewers(server, chosen[1:]) as viewers:
            before, started_s = _spent_s(server), time.monotonic()
            trained = _train(process, page, f"{server.url}/runs/{chosen[0]}")
            took_s = time.monotonic() - started_s
            spent = {name: spent_s - before[name] for name, spent_s in _spent_s(server).items()}
            drawn = page.evaluate("() => window.seen")
    began = dict(zip(plan.runs, trained["began_us"], strict=True))
    return _Watched(
        shown_ms=_waits_ms([(began[chosen[0]], [(at, step) for at, step in drawn])], plan),
        told_ms=_waits_ms([(began[run], seen) for run, seen in zip(chosen[1:], viewers.seen, strict=True)], plan),
        cores={name: spent_s / took_s for name, spent_s in {**spent, "senders": trained["processor_s"]}.items()},
    )


def _spent_s(server: Server) -> dict[str, float]:
    """What has been used of processors so far by the server, by Chromium, and by this process for the other viewers
    (and little else)."""
    parents, ours = {}, {os.getpid()}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # It has just ended.
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    chromium = [pid for pid in ours if "chromium" in Path(f"/proc/{pid}/comm").read_text()]
    return {
        "server": processor_s(server.pid),
        "chromium": sum(map(processor_s, chromium)),
        "takers": time.process_time(),
    }


def _waits_ms(watched: Sequence[tuple[int, Seen]], plan: WatchedPlan) -> list[float]:
    """How long each step took until it was seen, ascending; of those behind the first seconds and before the last one
    that was seen by whoever looked."""
    waits: list[float] = []
    for began_us, seen in watched:
        if not seen:
            raise RuntimeError("a viewer saw no step at all")
        newest, at = seen[-1][1], 0
        for step in range(int(WARM_S * plan.steps_per_s), newest + 1):
            while seen[at][1] < step:
                at += 1
            waits.append(seen[at][0] - began_us / 1e3 - (step + 1) / plan.steps_per_s * 1e3)
    return sorted(waits)


def _train(process: Popen, page: Page, url: str) -> dict[str, Any]:
    """Lets them train, and the browser look; gives what they say of it."""
    assert process.stdout is not None
    begin(process)
    page.goto(url)
    page.wait_for_selector("#panel-loss .js-plotly-plot .main-svg")
    page.evaluate(WATCH_CHART)
    while process.poll() is None:
        page.wait_for_timeout(200)  # where playwright's events are handled
    if process.returncode != 0:
        raise RuntimeError(f"the trainings ended with code {process.returncode}")
    page.wait_for_timeout(2_000)
    said: dict[str, Any] = json.loads(process.stdout.read())
    return said


@contextmanager
def _page(server: Server) -> Iterator[Page]:
    """A page of a browser that is signed in."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        try:
            page = browser.new_page(viewport={"width": 1440, "height": 900})
            code = _post(server, "/api/v1/session/links")["code"]
            answer = page.request.post(f"{server.url}/api/v1/session", data={"code": code})
            assert answer.ok, answer.status_text
            yield page
        finally:
            browser.close()


def _post(server: Server, path: str) -> Any:
    headers = {"Authorization": f"Bearer {server.token}"}
    request = urllib.request.Request(server.url + path, data=b"", headers=headers, method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


class _Viewers:
    """Viewers that take what the server sends, in a thread of their own."""

    def __init__(self, server: Server, runs: Sequence[str]) -> None:
        self._server, self._runs = server, runs
        self.seen: list[Seen] = [[] for _ in runs]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._all(),), daemon=True)
        self._over = asyncio.Event()

    def __enter__(self) -> _Viewers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(30.0)
        self._loop.close()

    async def _all(self) -> None:
        looking = [asyncio.create_task(self._look(run, seen)) for run, seen in zip(self._runs, self.seen, strict=True)]
        await self._over.wait()
        for task in looking:
            task.cancel()
        for result in await asyncio.gather(*looking, return_exceptions=True):
            if not isinstance(result, asyncio.CancelledError):
                raise RuntimeError(f"a viewer was left alone: {result!r}")

    async def _look(self, run: str, seen: Seen) -> None:
        headers = {"Authorization": f"Bearer {self._server.token}"}
        url = self._server.url.replace("http", "ws", 1) + "/api/v1/live"
        async with connect(url, additional_headers=headers, max_size=None, proxy=None) as socket:
            await socket.send(json.dumps({"type": "watch_run", "run": run, "panels": PANELS}))
            step = -1
            async for message in socket:
                text = str(message)
                if text.startswith('{"type":"run"'):
                    step = max([step, *map(int, _LAST_STEP.findall(text)[:1])])
                elif text.startswith('{"type":"panels"') and (not seen or step > seen[-1][1]):
                    seen.append((time.time() * 1e3, step))


BENCHES = [
    Bench(
        names=[
            "server.step_to_pixel_p50_ms",
            "server.step_to_pixel_p95_ms",
            "server.step_to_viewer_p95_ms",
            "server.step_to_pixel.floor_p50_ms",
            "server.step_to_pixel.floor_p95_ms",
            *(f"server.step_to_pixel.{name}_cores" for name in ("server", "chromium", "takers", "senders")),
        ],
        run=_measure,
    )
]
