"""One job of 1,024 ranks from 128 nodes into one server: points per second, acknowledgements, the Ranks page, memory.

The streams are those of `tests.bench.rank_senders`, over one websocket a node, into a real `halfscope serve` on SQLite.
`ranks.page_ms` is what somebody waits for who opens the page for the first time once the job has been recorded: the
report and every panel of the page, one after the other, over HTTP. Docs: docs/scale.md.
Invariant: a point counts when the batch it came in was acknowledged, that is, committed.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from halfscope.config import new_run_id

from tests.bench.ingest import NUM_PROCESSES, quantile, run_senders
from tests.bench.rank_senders import RankPlan
from tests.bench.report import Bench, Measurement, say
from tests.bench.senders import Result
from tests.bench.server_process import Server, serving

RANKS_PER_NODE = 8
STEPS_PER_S = 2.0
"""Of a large model: a step takes half a second."""
SKETCH_EVERY = 50


def _measure(quick: bool) -> Iterator[Measurement]:
    nodes = 8 if quick else 128
    with serving() as server:
        say(f"ranks: {nodes * RANKS_PER_NODE} ranks at {STEPS_PER_S:g} steps/s")
        run_id = new_run_id()
        paced = _job(server, run_id, nodes, steps=10 if quick else 120, steps_per_s=STEPS_PER_S)
        latencies = sorted(latency for each in paced for latency in each.ack_ms)
        yield Measurement(name="ranks.ack_p50_ms", value=quantile(latencies, 0.50), unit="ms")
        yield Measurement(name="ranks.ack_p99_ms", value=quantile(latencies, 0.99), unit="ms")
        say("ranks: as fast as they are taken")
        fast_id = new_run_id()
        fast = _job(server, fast_id, nodes, steps=64 if quick else 640, steps_per_s=0.0)
        took_s = max(each.last_ack_s for each in fast) - min(each.first_sent_s for each in fast)
        yield Measurement(name="ranks.points_per_s", value=sum(each.points for each in fast) / took_s, unit="points/s")
        first_s, again_s = (_open_page(server, fast_id) for _ in range(2))
        yield Measurement(name="ranks.page_ms", value=first_s * 1e3, unit="ms")
        yield Measurement(name="ranks.page_again_ms", value=again_s * 1e3, unit="ms")
        yield Measurement(name="ranks.server_memory_mib", value=_peak_mib(server.pid), unit="MiB")


def _job(server: Server, run_id: str, nodes: int, *, steps: int, steps_per_s: float) -> list[Result]:
    each = nodes // NUM_PROCESSES
    plans = [
        RankPlan(
            url=server.url,
            token=server.token,
            run_id=run_id,
            first_node=at * each,
            nodes=each,
            ranks_per_node=RANKS_PER_NODE,
            world_size=nodes * RANKS_PER_NODE,
            steps=steps,
            steps_per_s=steps_per_s,
            sketch_every=SKETCH_EVERY,
        )
        for at in range(NUM_PROCESSES)
    ]
    return run_senders(plans, "tests.bench.rank_senders")


def _open_page(server: Server, run_id: str) -> float:
    """Seconds until the report and all panels of the Ranks page are there."""
    panels = [each["id"] for each in _get(server, f"/api/v1/runs/{run_id}/panels")["panels"]]
    wanted = [panel for panel in panels if panel.startswith(("ranks-", "buckets-"))]
    assert wanted, f"a job of many ranks has panels of them; it has {panels}"
    started = time.perf_counter()
    report = _get(server, f"/api/v1/runs/{run_id}/ranks")
    for panel in wanted:
        _get(server, f"/api/v1/runs/{run_id}/panels/{panel}")
    took_s = time.perf_counter() - started
    assert report["num_seen"] == report["world_size"], "every rank was recorded"
    return took_s


def _get(server: Server, path: str) -> Any:
    request = urllib.request.Request(server.url + path, headers={"Authorization": f"Bearer {server.token}"})
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)


def _peak_mib(pid: int) -> float:
    """Most memory that a process has held at once."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


BENCHES = [
    Bench(
        names=[
            "ranks.ack_p50_ms",
            "ranks.ack_p99_ms",
            "ranks.points_per_s",
            "ranks.page_ms",
            "ranks.page_again_ms",
            "ranks.server_memory_mib",
        ],
        run=_measure,
    )
]
