"""What alerts cost the server, and how soon somebody hears of a bad step.

`alerts.core_share` is time of the evaluating thread alone, so it says the same whatever else the machine does: runs are
committed as a group of agents sends them, and a round of evaluation follows whenever the service would make one.
Invariant: no rule is left out because it is quiet.
"""

from __future__ import annotations

import http.server
import json
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from halfscope.sketch import Sketch, of_array, pack, stack
from halfscope.wire.codec import encode
from halfscope.wire.messages import (
    Ack,
    AgentFrame,
    Column,
    Declare,
    Layer,
    Layers,
    Points,
    Series,
    ServerFrame,
    Start,
    StreamInfo,
)
from halfscope_server.alerts import service as service_module
from halfscope_server.alerts.rule import Rule, Scope, Span
from halfscope_server.alerts.service import AlertService, pause_s
from halfscope_server.store.store import Store
from halfscope_server.store.types import ChannelRow

from tests.bench.ingest import begin, prepared, quantile
from tests.bench.report import Bench, Measurement, say
from tests.bench.senders import Plan
from tests.bench.server_process import serving
from tests.helpers.stream import Stream, from_body, to_body

NUM_RULES, NUM_RUNS, STEPS_PER_S = 1_000, 100, 50
NUM_SERIES, NUM_LAYERS, SKETCH_EVERY = 20, 24, 50
FRAME_S = 0.2
"""How often each agent sends."""
GROUP_S = 0.05
"""How often the server commits."""
SPIKE = 1e9
BEGAN_US = 1_700_000_000_000_000


def rules(*, shared: bool) -> list[Rule]:
    """As different as they come: several aggregations and windows, plain series and derived metrics.

    Args:
        shared: every rule looks at every run; else each run has rules of its own, as many as there are for each.
    """
    shapes = [("last", 1), ("mean", 50), ("max", 200), ("min", 200), ("mean", 1000), ("quantile", 200), ("change", 50)]
    derived = [
        ("nonfinite_rate.applied", "last", 1),
        ("nonfinite_rate.caught_unexpected", "rate", 200),
        ("skip_streak.unexpected", "last", 1),
        ("underflow_share.measured", "last", 1),
    ]
    made = []
    for number in range(NUM_RULES):
        # Its place among the rules of a run, whichever way they are dealt out.
        place = number if shared else number // NUM_RUNS
        if place % 10 == 9:
            metric, aggregation, steps = derived[number // 10 % len(derived)]
        else:
            metric = f"bench.{place % NUM_SERIES}"
            aggregation, steps = shapes[(place // NUM_SERIES if shared else place) % len(shapes)]
        made.append(
            Rule(
                id=f"rule-{number}",
                name=f"Rule {number}",
                metric=metric,
                aggregation=aggregation,
                argument=0.9 if aggregation == "quantile" else None,
                window=Span(steps=steps),
                threshold=2.6 + number / NUM_RULES,
                hold=Span(steps=10),
                scope=Scope() if shared else Scope(runs=[f"run {number % NUM_RUNS}"]),
            )
        )
    return made


class _Agent:
    """One run: frames of noise around 2, sent every `FRAME_S`, sketches of all layers at every fiftieth step."""

    def __init__(self, store: Store, index: int) -> None:
        self.noise = np.random.default_rng(index)
        self.stream = Stream(f"run-{index:04d}", f"{index:016x}", StreamInfo(started_us=BEGAN_US))
        self.stream.welcomed(store.grant(self.stream.hello(), now_us=BEGAN_US))
        self.step = 0
        names = [*(f"bench.{sid}" for sid in range(NUM_SERIES)), "opt.steps"]
        self.payloads = [
            encode(Start(time_us=BEGAN_US, project="bench", name=f"run {index}")),
            encode(Declare([Series(sid, name) for sid, name in enumerate(names)])),
            encode(Layers([Layer(lid, f"block.{lid}.weight", [256], "float32") for lid in range(NUM_LAYERS)])),
        ]
        self.sketch: Sketch = stack([of_array(self.noise.normal(size=256)) for _ in range(NUM_LAYERS)])

    def frame(self) -> None:
        """The next `FRAME_S`."""
        num_steps = round(FRAME_S * STEPS_PER_S)
        step = np.arange(self.step, self.step + num_steps)
        time_us = BEGAN_US + step * (1_000_000 // STEPS_PER_S)
        columns = [Column(sid, self.noise.normal(2.0, 0.1, num_steps).tobytes()) for sid in range(NUM_SERIES)]
        columns.append(Column(NUM_SERIES, (step + 1.0).tobytes()))
        for at in step[step % SKETCH_EVERY == 0].tolist():
            lids = np.arange(NUM_LAYERS)
            records = pack(
                self.sketch, lids, step=at, time_us=int(time_us[0]), point="unscale", clipped="no", scale=1024.0
            )
            self.payloads += [encode(record) for record in records]
        self.payloads.append(encode(Points(step.tobytes(), time_us.tobytes(), columns)))
        self.step += num_steps


def _core_share(quick: bool) -> Iterator[Measurement]:
    yield Measurement(name="alerts.core_share", value=_measured(quick, shared=False), unit="cores")


def _core_share_of_all(quick: bool) -> Iterator[Measurement]:
    yield Measurement(name="alerts.core_share_all_on_all", value=_measured(quick, shared=True), unit="cores")


def _measured(quick: bool, *, shared: bool) -> float:
    """Shared: every rule looks at every run, which is a hundred times as many judgements."""
    seconds = 2 if quick else 12
    say(f"alerts.core_share: {NUM_RULES:,} rules, {NUM_RUNS} runs at {STEPS_PER_S} steps/s for {seconds} s of theirs")
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        store = Store.open(f"sqlite:///{folder}/bench.db")
        for rule in rules(shared=shared):
            store.alerts.put_rule(rule.id, rule.model_dump(), now_us=BEGAN_US - 1)
        agents = [_Agent(store, index) for index in range(NUM_RUNS)]
        share = _evaluated(store, agents, seconds)
        store.close()
    return share


def _evaluated(store: Store, agents: list[_Agent], seconds: float) -> float:
    """Time of evaluation per second of the runs, once all of them are followed."""
    now_us = BEGAN_US
    service = AlertService(store, clock_us=lambda: now_us)

    def commit(sending: Sequence[_Agent]) -> None:
        batches = []
        for agent in sending:
            agent.frame()
            batches.append(agent.stream.batch_of(agent.payloads))
            agent.payloads = []
        result = store.commit(batches, now_us=now_us)
        assert not result.refused, result.refused[:1]
        service.notify(result.applied)

    for _ in range(3):
        commit(agents)
        now_us += int(service_module.LOOK_S * 1e6)
        service.round()
    began_us, next_us, spent_s = now_us, now_us, 0.0
    num_groups = round(FRAME_S / GROUP_S)
    for group in range(round(seconds / GROUP_S)):
        now_us += int(GROUP_S * 1e6)
        commit(agents[group % num_groups :: num_groups])
        if now_us >= next_us:
            began_s = time.thread_time()
            service.round()
            took_s = time.thread_time() - began_s
            spent_s += took_s
            next_us = now_us + int(1e6 * (took_s + pause_s(took_s)))
        store.compact(now_us=now_us, budget_s=0.01)
    metrics = service.metrics()
    assert metrics.errors == 0, "the log says what failed"
    say(f"alerts.core_share: {metrics.updates} evaluations, {metrics.fired} fired, {metrics.catch_ups} read back")
    return spent_s / ((now_us - began_us) / 1e6)


def _step_to_notify(quick: bool) -> Iterator[Measurement]:
    num_spikes = 4 if quick else 25
    say(f"alerts.step_to_notify: {num_spikes} bad steps of one of 21 runs on a server with the rules of a team")
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder, _receiver() as receiver:
        home = Path(folder)
        _prepare(home, receiver.url)
        with serving(home, HALFSCOPE_ALERT_ALLOW_PRIVATE="1") as server:
            others = Plan(
                url=server.url,
                token=server.token,
                agents=20,
                series=NUM_SERIES,
                steps=int((num_spikes * 2 + 10) * STEPS_PER_S),
                steps_per_s=STEPS_PER_S,
                seed=1,
            )
            with prepared([others]) as (background,):
                begin(background)
                happened = _spikes(server.url, server.token, num_spikes)
        waits = sorted((receiver.arrived[step] - at) * 1e3 for step, at in happened.items() if step in receiver.arrived)
        if len(waits) < len(happened):
            raise RuntimeError(f"{len(happened)} bad steps and {len(waits)} notifications")
    yield Measurement(name="alerts.step_to_notify_p50_ms", value=quantile(waits, 0.5), unit="ms")
    yield Measurement(name="alerts.step_to_notify_p95_ms", value=quantile(waits, 0.95), unit="ms")


def _prepare(home: Path, url: str) -> None:
    """A database with a hundred rules that stay quiet, one that does not, and a channel."""
    store = Store.open(f"sqlite:///{home / 'halfscope.db'}")
    now_us = time.time_ns() // 1000 - 3_600_000_000
    others = {"threshold": SPIKE / 10, "scope": Scope(runs=["agent-*"])}
    quiet = [rule.model_copy(update=others) for rule in rules(shared=True)]
    spike = Rule(id="spike", name="Spike", metric="bench.0", threshold=SPIKE / 2, severity="critical")
    for rule in (*quiet[:: NUM_RULES // 100], spike):
        store.alerts.put_rule(rule.id, rule.model_dump(), now_us=now_us)
    store.alerts.put_channel(
        ChannelRow(
            channel_id="hook",
            kind="webhook",
            name="Hook",
            enabled=True,
            options={},
            secrets={"url": url},
            created_us=now_us,
            updated_us=now_us,
        )
    )
    store.close()


def _spikes(url: str, token: str, num_spikes: int) -> dict[int, float]:
    """One training as its sender would post it: a bad step every two seconds.

    Returns:
        Bad step -> when it happened, by the monotonic clock.
    """
    stream = Stream(f"spikes{time.time_ns():x}", "00" * 8, StreamInfo(started_us=time.time_ns() // 1000))

    def ask(frame: AgentFrame) -> ServerFrame:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/octet-stream"}
        request = urllib.request.Request(f"{url}/api/v1/ingest", data=to_body(frame), headers=headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            return from_body(response.read())[0]

    stream.welcomed(ask(stream.hello()))
    payloads = [
        encode(Start(time_us=time.time_ns() // 1000, project="bench", name="spikes")),
        encode(Declare([Series(0, "bench.0"), Series(1, "opt.steps")])),
    ]
    happened: dict[int, float] = {}
    began_s = time.monotonic()
    per_frame = round(FRAME_S * STEPS_PER_S)
    for frame in range(round((num_spikes * 2 + 3) / FRAME_S)):
        step = np.arange(frame * per_frame, (frame + 1) * per_frame)
        at_s = began_s + (step + 1) / STEPS_PER_S
        wall_us = time.time_ns() // 1000 + ((at_s - time.monotonic()) * 1e6).astype(np.int64)
        value = np.full(per_frame, 2.0)
        if frame % 10 == 5 and len(happened) < num_spikes:
            value[3] = SPIKE
            happened[int(step[3])] = float(at_s[3])
        time.sleep(max(0.0, at_s[-1] - time.monotonic()))
        columns = [Column(0, value.tobytes()), Column(1, (step + 1.0).tobytes())]
        payloads.append(encode(Points(step.tobytes(), wall_us.tobytes(), columns)))
        answer = ask(stream.batch_of(payloads))
        assert isinstance(answer, Ack), answer
        payloads = []
    return happened


class _Receiver:
    def __init__(self) -> None:
        self.arrived: dict[int, float] = {}
        """First step of the episode -> when its beginning was posted here."""
        self.url = ""

    def took(self, body: bytes) -> None:
        now_s = time.monotonic()
        for alert in json.loads(body)["alerts"]:
            if alert["kind"] == "fired":
                self.arrived.setdefault(alert["first_step"], now_s)


@contextmanager
def _receiver() -> Iterator[_Receiver]:
    receiver = _Receiver()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.took(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


BENCHES = [
    Bench(names=["alerts.core_share"], run=_core_share),
    Bench(names=["alerts.core_share_all_on_all"], run=_core_share_of_all),
    Bench(names=["alerts.step_to_notify_p50_ms", "alerts.step_to_notify_p95_ms"], run=_step_to_notify),
]
