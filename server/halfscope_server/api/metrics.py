"""What Prometheus is told.

Owns names and cardinality. Must not compute anything that the pages do not compute as well. Invariant: the number of
time series is
bounded: states are few, and only the `MAX_RUNS` runs heard of last have gauges of their own.
"""

from __future__ import annotations

import dataclasses
from collections import Counter as Tally
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any, get_args

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from halfscope_server.query.summary import count_skips, current_scale
from halfscope_server.query.view import RunView
from halfscope_server.store.types import RunState

if TYPE_CHECKING:
    from halfscope_server.api.services import Services

MAX_RUNS = 50
SKIP_CLASSES = ("settling", "probe", "single", "streak")
_RUN_LABELS = ("run", "name", "project")


class Metrics:
    """The registry of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.errors = Counter(
            "halfscope_unexpected_errors",
            "Requests that failed in a way nobody foresaw; the log has each",
            registry=self.registry,
        )

    def watch(self, services: Services) -> None:
        """Adds what is read off the parts at each scrape."""
        self.registry.register(_Parts(services))


class _Parts(Collector):
    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering does not scrape."""
        return ()

    def collect(self) -> Iterator[Metric]:
        rows = self._services.store.list_runs()
        states = Tally(row.state for row in rows)
        yield _gauge(
            "halfscope_runs", "Runs by state", ("state",), [((state,), states[state]) for state in get_args(RunState)]
        )
        yield from self._counters()
        yield _gauge("halfscope_live_clients", "Browsers that watch live", (), [((), self._services.hub.num_clients)])
        newest = sorted(rows, key=lambda row: row.updated_us, reverse=True)[:MAX_RUNS]
        views = [view for row in newest if (view := self._services.views.get(row.run_id, row)) is not None]
        yield from _runs(views)

    def _counters(self) -> Iterator[Metric]:
        """Every counter of the parts that count under its own name."""
        services = self._services
        yield from _each("ingest", services.writer.metrics(), gauges=("queue_frames", "queue_bytes"))
        yield from _each("alerts", services.alerts.metrics(), gauges=("queue_bytes", "runs", "is_evaluating"))
        yield from _each("ranks", services.judges.metrics(), gauges=())
        counts = services.store.alerts.count_episodes()
        yield _gauge("halfscope_alerts_firing", "Alerts that fire now", (), [((), counts.firing)])
        delivery = services.delivery
        for name in ("sent", "failed", "retries", "errors"):
            text = f"Notifications: {name}"
            value = float(getattr(delivery, f"num_{name}"))
            yield CounterMetricFamily(f"halfscope_notifications_{name}", text, value=value)


def _each(part: str, found: Any, *, gauges: Collection[str]) -> Iterator[Metric]:
    for entry in dataclasses.fields(found):
        name, value = f"halfscope_{part}_{_unit_last(entry.name)}", float(getattr(found, entry.name))
        text = f"Of the {part}: {entry.name.replace('_', ' ')}"
        if entry.name in gauges:
            yield _gauge(name, text, (), [((), value)])
        else:
            yield CounterMetricFamily(name, text, value=value)


def _unit_last(name: str) -> str:
    """Prometheus writes seconds out."""
    return name.removesuffix("_s") + "_seconds" if name.endswith("_s") else name


def _runs(views: list[RunView]) -> Iterator[Metric]:
    labels = [(view.run_id, view.row.name, view.row.project) for view in views]
    steps = [
        (label, view.row.last_step) for label, view in zip(labels, views, strict=True) if view.row.last_step is not None
    ]
    yield _gauge("halfscope_run_last_step", "Newest step of a run", _RUN_LABELS, steps)
    scales = [
        (label, scale) for label, view in zip(labels, views, strict=True) if (scale := current_scale(view)) is not None
    ]
    yield _gauge("halfscope_run_scale", "Loss scale that the next step will use", _RUN_LABELS, scales)
    skips = [
        ((*label, kind), getattr(count_skips(view), kind))
        for label, view in zip(labels, views, strict=True)
        for kind in SKIP_CLASSES
    ]
    yield _gauge("halfscope_run_skips", "Skipped steps of a run by class", (*_RUN_LABELS, "class"), skips)


def _gauge(name: str, text: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, number in samples:
        family.add_metric(values, number)
    return family
