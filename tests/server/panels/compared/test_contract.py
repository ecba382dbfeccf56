"""What every panel of a comparison must keep to, run over all that the folder holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from halfscope_server.api.models import Table as TableModel
from halfscope_server.compare.comparison import Comparison, Comparisons
from halfscope_server.compare.types import Alignment, Options
from halfscope_server.panels import compared
from halfscope_server.query import Views, Window
from halfscope_server.store.store import Store

from tests.helpers.figures import check_figure

WriteRun = Callable[..., Any]

EVIL = "<a href='javascript:alert(1)'>$x$ %{y} & co</a>"
WINDOWS = [
    Window(),
    Window(first=100, last=400, layer="blocks.0.weight", y="log", smooth=0.9),
    Window(first=10_000_000, last=10_000_001),
    Window(layer="blocks", gradient="seen", step=120, width_px=50),
    Window(layer="nowhere"),
]


def write(write_run: WriteRun, run_id: str, precision: str, num_steps: int, *, bad: bool = False) -> Any:
    """A run with every series that any panel of a comparison draws; some steps skipped, some values not finite."""
    writer = write_run(run_id, name=EVIL)
    step = np.arange(num_steps)
    loss = 2.0 / (1 + step / 100) + 0.01 * np.sin(step)
    loss[5::97] = np.nan if bad else loss[5::97]
    for name, unit, kind, value in (
        ("loss", "", "gauge", loss),
        ("grad.norm", "norm", "gauge", np.exp(-step / 500)),
        ("time.step_s", "s", "gauge", 0.01 + 0.001 * (step % 7)),
        ("throughput.samples_per_s", "samples/s", "gauge", 6400.0 - step % 7),
        ("memory.rss_bytes", "bytes", "gauge", 2.0**30 + step),
        ("samples", "", "state", 64.0),
        ("tokens", "", "state", 640.0),
    ):
        writer.points(name, step, value, unit=unit, kind=kind)
    if precision == "FP16-AMP":
        writer.points("amp.scale", step, np.where(step < 200, 65536.0, 1000.0), kind="state")
        for at in range(0, num_steps, 50):
            writer.skip(at, "probe")
    writer.facts(precision=precision, sketches={"every": 25})
    rng = np.random.default_rng(7)
    for at in range(0, num_steps, 25):
        layers = {f"blocks.{k}.weight": rng.normal(size=60) * 10.0**-k for k in range(2)}
        writer.frame(at, {**layers, f"head.{EVIL}": np.zeros(5)}, 65536.0 if precision == "FP16-AMP" else np.nan)
    writer.commit()
    return writer


@pytest.fixture
def comparisons(lite: Store, write_run: WriteRun) -> Comparisons:
    """Four runs: FP32, FP16 with NaN and skips, BF16 that is shorter, and one without a step."""
    write(write_run, "a", "FP32", 600)
    write(write_run, "b", "FP16-AMP", 600, bad=True)
    write(write_run, "c", "BF16-AMP", 300)
    write_run("empty").commit()
    return Comparisons(Views(lite))


def test_every_panel_keeps_to_the_contract_in_every_alignment(comparisons: Comparisons) -> None:
    """Types, sizes, finite arrays, roles, axes, labels and tables; names from outside are never markup."""
    for align in get_args(Alignment):
        comparison = comparisons.get(["a", "b", "c", "empty"], Options(align=align))
        found = compared.available(comparison)
        assert {panel.id for panel in found} >= {panel.id for panel in compared.discover() if panel.section != "layer"}
        for panel in found:
            # Every window on one axis, the telling ones on the others.
            for window in WINDOWS if align == "attempts" else WINDOWS[1:2]:
                figure = compared.figure(comparison, panel, window)
                check_figure(figure, validate=align == "attempts" and window is WINDOWS[0])
                assert figure["fill"]["run"] == "a,b,c,empty"
                drawn = [figure["skeleton"], figure["fill"]["data"], figure["fill"]["layout"]]
                assert "%{y} & co" not in json.dumps(drawn), panel.id
            table = compared.table(comparison, panel, WINDOWS[1])
            TableModel(columns=table.columns, rows=table.rows, note=table.note)
            assert all(len(row) == len(table.columns) for row in table.rows)
            assert len(table.rows) <= 200


def test_runs_without_a_step_have_panels_that_say_so(lite: Store, write_run: WriteRun) -> None:
    """Series are declared, nothing was measured."""
    for run_id in ("a", "b"):
        writer = write_run(run_id, name=EVIL)
        for name in ("loss", "grad.norm", "time.step_s", "amp.scale"):
            writer.series(name)
        writer.commit()
    comparison = Comparisons(Views(lite)).get(["a", "b"])
    found = compared.available(comparison)
    assert found
    for panel in found:
        figure = compared.figure(comparison, panel, Window())
        check_figure(figure)
        assert figure["fill"]["empty"]


def test_skeletons_stay_while_data_come_and_change_with_the_runs(comparisons: Comparisons, write_run: WriteRun) -> None:
    """A client fetches a panel anew only where its lines are others."""

    def skeletons(comparison: Comparison) -> dict[str, str]:
        found = compared.available(comparison)
        return {panel.id: compared.fill(comparison, panel, Window())["skeleton_id"] for panel in found}

    before = skeletons(comparisons.get(["a", "b"]))
    assert skeletons(comparisons.get(["a", "b"], replace(Options(), tolerance_share=0.1))) == before
    swapped = skeletons(comparisons.get(["b", "a"]))
    assert swapped["compare-quality"] != before["compare-quality"]
