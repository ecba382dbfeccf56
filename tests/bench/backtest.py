"""How long the rule editor's preview takes on a run of 1,000,000 steps.

The series is stored by the real store on SQLite. Each round makes fresh views and evaluates one rule over the whole
run: what a person waits for after a change in the editor, less the network. The marked number is of a mean over 200
steps held for 100; beside it, in turns, rules that take more work.
Invariant: no round profits from what an earlier one computed; only the operating system's file cache is warm.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from halfscope_server.alerts.backtest import backtest
from halfscope_server.alerts.rule import Rule, Span
from halfscope_server.query.view import Views
from halfscope_server.store.store import Store

from tests.bench.reading import NUM_POINTS, in_turns, loss_values, store_series
from tests.bench.report import Bench, Measurement, say

RULES = {
    "alerts.backtest_1m_ms": {"aggregation": "mean", "window": Span(steps=200), "hold": Span(steps=100)},
    "alerts.backtest_1m.quantile_ms": {"aggregation": "quantile", "argument": 0.9, "window": Span(steps=200)},
    "alerts.backtest_1m.ratio_ms": {"aggregation": "ratio", "window": Span(steps=200)},
    "alerts.backtest_1m.flapping_ms": {"aggregation": "last"},
}


def _measure(quick: bool) -> Iterator[Measurement]:
    num_points = 100_000 if quick else NUM_POINTS
    with tempfile.TemporaryDirectory(prefix="halfscope-bench-") as folder:
        say(f"alerts.backtest_1m: storing a series of {num_points:,} points")
        store = Store.open(f"sqlite:///{Path(folder) / 'halfscope.db'}")
        try:
            run_id = store_series(store, loss_values(num_points))

            def tried(options: dict[str, object]) -> None:
                rule = Rule.model_validate({"id": "r", "name": "r", "metric": "loss", "threshold": 0.35, **options})
                (run,) = backtest(store, Views(store), rule, [run_id]).runs
                assert run.last_step == num_points - 1, "the whole run is looked at"
                assert len(run.steps) == 600, "a band for each pixel"

            reads = {name: lambda options=options: tried(options) for name, options in RULES.items()}
            times = in_turns(reads, rounds=3 if quick else 9)
        finally:
            store.close()
    for name, taken in times.items():
        yield Measurement(name=name, value=statistics.median(taken) * 1e3, unit="ms")


BENCHES = [Bench(names=list(RULES), run=_measure)]
