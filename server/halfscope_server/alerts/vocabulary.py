"""What rules can be made of, for the editor: metrics, aggregations, projects, tags.

Must not evaluate. Invariant: whatever is offered together makes a rule without problems.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Protocol

from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.metrics import metrics
from halfscope_server.alerts.validation import allowed
from halfscope_server.store.types import RunRow, SeriesRow

NEWEST_RUNS = 50
"""Runs whose series are offered: those of all of a thousand old ones would hide them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricItem:
    """Mirrors the API."""

    id: str
    title: str
    unit: str
    text: str
    derived: bool
    per_layer: bool
    aggregations: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregationItem:
    """Mirrors the API."""

    id: str
    title: str
    text: str
    needs_window: bool
    argument: str
    default_argument: float | None
    unit: Literal["same", "share", "", "per"]
    takes_baseline: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Mirrors the API's `RuleVocabulary`."""

    metrics: list[MetricItem]
    aggregations: list[AggregationItem]
    projects: list[str]
    tags: list[str]


class ListsSeries(Protocol):
    """What is needed of the store."""

    def list_runs(self) -> list[RunRow]: ...
    def series(self, run_id: str) -> list[SeriesRow]: ...


def vocabulary(store: ListsSeries) -> Vocabulary:
    """Derived metrics, then the series of the newest runs."""
    runs = store.list_runs()
    named: dict[str, SeriesRow] = {}
    for run in runs[:NEWEST_RUNS]:
        for series in store.series(run.run_id):
            named.setdefault(series.name, series)
    return Vocabulary(
        metrics=[*_derived(), *(_of_series(named[name]) for name in sorted(named))],
        aggregations=[
            AggregationItem(
                id=item.id,
                title=item.title,
                text=item.text,
                needs_window=item.needs_window,
                argument=item.argument,
                default_argument=item.default_argument,
                unit=item.unit,
                takes_baseline=item.takes_baseline,
            )
            for item in aggregations().values()
        ],
        projects=sorted({run.project for run in runs if run.project}),
        tags=sorted({tag for run in runs for tag in run.tags}),
    )


def _derived() -> Iterable[MetricItem]:
    for metric in metrics().values():
        yield MetricItem(
            id=metric.id,
            title=metric.title,
            unit=metric.unit,
            text=metric.text,
            derived=True,
            per_layer=metric.per_layer,
            aggregations=list(allowed(metric)),
        )


def _of_series(series: SeriesRow) -> MetricItem:
    return MetricItem(
        id=series.name,
        title=series.name,
        unit=series.unit,
        text="A series of the run, as it was recorded.",
        derived=False,
        per_layer=False,
        aggregations=list(allowed(None)),
    )
