"""Rules about lost updates: sketches of what weights changed by, live, read back and of stored runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from halfscope_server.alerts.backtest import backtest
from halfscope_server.alerts.rule import Rule, Scope
from halfscope_server.alerts.service import AlertService
from halfscope_server.query.updates import update_moments
from halfscope_server.query.view import Views
from halfscope_server.store.store import Store

from tests.server.conftest import BEGAN_US, RunWriter

RULE = Rule(id="lost", name="Lost", metric="update_lost_share", threshold=0.5, group_by=["run", "layer"])
ELEMENTS = 40
LOST = {"a.weight": [0, 30, 30, 10, 0, 0, 36, 0], "b.weight": [0, 0, 0, 25, 25, 25, 25, 25]}
"""Of 40 sampled elements, at every tenth step."""


def _frame(run: RunWriter, at: int) -> None:
    """Gradients that lost nothing, and changes of which some are zero; then the steps they belong to."""
    changes = {}
    for name, lost in LOST.items():
        change = np.full(ELEMENTS, 1e-3)
        change[: lost[at]] = 0.0
        changes[name] = change
    run.frame(at * 10, {name: np.ones(ELEMENTS) for name in LOST})
    run.frame(at * 10, changes, of="update")
    steps = np.arange(at * 10, at * 10 + 10)
    run.points("opt.steps", steps, steps + 1.0)


def _told(rows: Any) -> list[tuple[Any, ...]]:
    return sorted((row.layer, row.first_step, row.fired_step, row.resolved_step, row.value) for row in rows)


@pytest.mark.parametrize("way", ["handed over", "read back", "restarted"])
def test_a_layer_fires_where_it_loses_most_of_its_updates(lite: Store, way: str) -> None:
    """However the sketches come, at their own step, as counted on the pages and as a back-test says."""
    lite.alerts.put_rule(RULE.id, RULE.model_dump(), now_us=BEGAN_US - 1)
    service, run = AlertService(lite, clock_us=lambda: BEGAN_US), RunWriter(lite)
    for at in range(8):
        _frame(run, at)
        applied = run.commit()
        if way != "read back":
            service.notify(applied)
        if way != "handed over" and at % 4 == 3:
            service = AlertService(lite, clock_us=lambda: BEGAN_US)
        if way != "read back" or at % 4 == 3:
            service.round()
    found = lite.alerts.episodes()
    assert _told(found) == [
        ("a.weight", 10, 10, 30, 0.75),
        ("a.weight", 60, 60, 70, 0.9),
        ("b.weight", 30, 30, None, 0.625),
    ]
    view = Views(lite).get(run.run_id)
    assert view is not None
    moments = update_moments(view)
    assert moments is not None
    share = moments.zeros / moments.n
    assert [(row.layer, row.value) for row in found] == [
        (row.layer, share[row.fired_step // 10, moments.names.index(row.layer)])
        for row in found
        if row.fired_step is not None
    ]
    (tried,) = backtest(lite, Views(lite), RULE, [run.run_id]).runs
    assert _told(tried.episodes) == _told(found)


def test_a_rule_that_comes_later_begins_with_the_next_sketch(lite: Store) -> None:
    """What was lost while nobody looked is for the back-test to say, also where the run is read back."""
    now_us = [BEGAN_US]
    other = Rule(id="other", name="o", metric="opt.steps", threshold=1e9)
    only_a = RULE.model_copy(update={"scope": Scope(layers=["a.*"])})
    lite.alerts.put_rule(other.id, other.model_dump(), now_us=BEGAN_US - 1)
    service, run = AlertService(lite, clock_us=lambda: now_us[0]), RunWriter(lite)
    for at in range(8):
        now_us[0] += 60_000_000
        if at == 5:
            lite.alerts.put_rule(only_a.id, only_a.model_dump(), now_us=now_us[0])
            service.rules_changed()
        _frame(run, at)
        service.notify(run.commit())
        if at >= 5:
            service = AlertService(lite, clock_us=lambda: now_us[0])
        service.round()
    assert _told(lite.alerts.episodes()) == [("a.weight", 60, 60, 70, 0.9)]
