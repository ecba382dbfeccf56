"""What every panel must keep to, run over all panels that the folder holds and those made per run."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server import panels
from halfscope_server.api.models import Table as TableModel
from halfscope_server.query import RunView, Views, Window
from halfscope_server.store.store import Store

from tests.helpers.figures import check_figure

WriteRun = Callable[..., Any]

EVIL = "<a href='javascript:alert(1)'>$x$ %{y} & co</a>"
WINDOWS = [
    Window(),
    Window(x="time"),
    Window(x="time", first=1_700_000_000_500_000.0, last=1_700_000_002_000_000.0, utc_offset_min=-330),
    Window(first=10, last=40),
    Window(first=10_000_000, last=10_000_001),
    Window(y="log", smooth=0.9),
    Window(y="linear", width_px=50),
    Window(stat="headroom", gradient="true", step=33, layer="blocks.0"),
    Window(stat="norm", gradient="seen", layer=f"blocks.0.{EVIL}.weight"),
    Window(stat="nonfinite", rows=("blocks", "head.bias")),
    Window(stat="zeros", layer="nowhere"),
]
SERIES: dict[str, dict[str, str]] = {
    "loss": {},
    "lr": {"kind": "state"},
    "amp.scale": {"kind": "state"},
    "amp.scale_next": {"kind": "state"},
    "amp.skipped": {"kind": "flag"},
    "amp.growth_tracker": {"kind": "counter"},
    "grad.norm": {"unit": "norm"},
    "grad.norm_clipped": {"unit": "norm"},
    "time.step_s": {"unit": "s"},
    "throughput.samples_per_s": {"unit": "samples/s"},
    "throughput.tokens_per_s": {"unit": "tokens/s"},
    "memory.rss_bytes": {"unit": "bytes"},
    "memory.device_allocated_bytes": {"unit": "bytes"},
    "memory.device_peak_bytes": {"unit": "bytes"},
    "halfscope.cost_share": {"unit": "share"},
    "val/accuracy": {"unit": "share"},
    f"val/{EVIL}": {"kind": "flag", "unit": EVIL},
    "plain": {"kind": "counter"},
    "temperature": {"unit": "°C", "kind": "state"},
}


def write_all(write_run: WriteRun, num_steps: int, value: Callable[[np.ndarray], Any]) -> None:
    """A run with every series that any panel draws, under names that would be markup."""
    writer = write_run(name=EVIL)
    steps = np.arange(num_steps)
    writer.columns(steps, {writer.series(name, **options): value(steps) for name, options in SERIES.items()})
    for step in range(0, num_steps, 50):
        writer.skip(step, "probe")
        writer.event("scale_growth", step)
    if num_steps > 100:
        for step in (90, 91, 92):
            writer.skip(step, "single")
        writer.event("bad_streak", 92, "warning", first_step=90)
        writer.event("bad_streak_end", 150, first_step=90, last_step=92)
    writer.facts(precision="FP16-AMP", sketches={"every": 50})
    for step in range(0, num_steps, max(50, num_steps // 60)):
        writer.frame(step, gradients_at(step, value), 2.0**16 if step < num_steps // 2 else 1000.0)
    writer.commit()


def gradients_at(step: int, value: Callable[[np.ndarray], Any]) -> dict[str, np.ndarray]:
    """Layers with the values that the run's series have there, some of them now and then without a gradient."""
    around = np.broadcast_to(np.asarray(value(np.arange(step, step + 40)), np.float64), (40,))
    gradients = {f"blocks.{k}.{name}.weight": around * 10.0**-k for k in range(3) for name in ("fc", EVIL)}
    return gradients if step % 3 else {**gradients, "head.bias": around}


RUNS: dict[str, tuple[int, Callable[[np.ndarray], Any]]] = {
    "one step": (1, lambda s: 3.0),
    "long": (40_000, lambda s: 2.0 ** (10 + s // 5000) + np.sin(s)),
    "full of NaN": (3000, lambda s: np.nan),
    "all infinite": (200, lambda s: np.where(s % 2, np.inf, -np.inf)),
    "zeros": (1500, lambda s: 0.0),
    "negative": (300, lambda s: -1.0 - s),
    "tiny": (300, lambda s: np.where(s % 2, 5e-324, 1e-300)),
    "huge": (2500, lambda s: np.where(s % 2, 1.7e308, -1.7e308)),
    "mixed": (2000, lambda s: np.where(s % 7 == 0, np.nan, np.exp(s / 100))),
}


@pytest.fixture(params=list(RUNS))
def filled_run(request: pytest.FixtureRequest, lite: Store, write_run: WriteRun) -> RunView:
    """A run with every series, holding one of many kinds of values."""
    write_all(write_run, *RUNS[request.param])
    return view_of(lite)


def view_of(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


def is_of_ranks(panel: panels.Panel) -> bool:
    """Whether it is there for runs of several ranks alone; tests/server/panels/test_rank_panels.py has those."""
    return panel.section in ("ranks", "one rank")


def test_every_panel_keeps_to_the_contract_on_every_run(filled_run: RunView) -> None:
    """Types, sizes, finite arrays, roles, axes, labels and tables, in every window."""
    found = panels.for_run(filled_run)
    # Every window on the runs that differ by window, the telling ones on the rest.
    windows = (
        WINDOWS if filled_run.span is not None and filled_run.span.num_steps >= 2000 else WINDOWS[:1] + WINDOWS[5:6]
    )
    assert {panel.id for panel in panels.discover() if not is_of_ranks(panel)} <= {panel.id for panel in found}
    assert not any(is_of_ranks(panel) for panel in found)
    for panel in found:
        for window in windows:
            check_figure(panels.figure(filled_run, panel, window), validate=window is WINDOWS[0])
        table = panels.table(filled_run, panel, Window())
        TableModel(columns=table.columns, rows=table.rows, note=table.note)
        assert all(len(row) == len(table.columns) for row in table.rows)
        assert len(table.rows) <= 200


def test_a_run_without_a_step_has_panels_that_say_so(lite: Store, write_run: WriteRun) -> None:
    """Series are declared, nothing was measured."""
    writer = write_run(name=EVIL)
    for name, options in SERIES.items():
        writer.series(name, **options)
    writer.commit()
    view = view_of(lite)
    for panel in panels.for_run(view):
        figure = panels.figure(view, panel, Window())
        check_figure(figure)
        assert figure["fill"]["empty"]
        assert panels.table(view, panel, Window()).rows == []


def test_names_from_outside_are_never_markup(lite: Store, write_run: WriteRun) -> None:
    """Whatever plotly would read as a link, a formula or a placeholder is written as text."""
    write_all(write_run, *RUNS["mixed"])
    view = view_of(lite)
    for panel in panels.for_run(view):
        figure = panels.figure(view, panel, Window())
        served = {"skeleton": figure["skeleton"], "data": figure["fill"]["data"], "layout": figure["fill"]["layout"]}
        text = json.dumps(served)
        assert "<a" not in text, panel.id
        assert "$x$" not in text, panel.id
        assert "%{y} & co" not in text, panel.id


def test_the_same_structure_has_the_same_skeleton_and_another_another(lite: Store, write_run: WriteRun) -> None:
    """New points keep the skeleton a client has; a new series of the chart does not."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.commit()
    views = Views(lite)

    def skeleton_id() -> str:
        view = views.get("run1")
        assert view is not None
        panel = panels.find(view, "loss")
        assert panel is not None
        return str(panels.fill(view, panel, Window())["skeleton_id"])

    first = skeleton_id()
    writer.points("loss", range(10, 20), 1.0)
    writer.commit()
    assert skeleton_id() == first
    writer.points("lr", [10], 0.1)
    writer.commit()
    assert skeleton_id() != first


def test_every_series_is_drawn_by_exactly_one_kind_of_panel(lite: Store, write_run: WriteRun) -> None:
    """What no panel claims gets one of its own, grouped by the part before the slash."""
    write_all(write_run, *RUNS["one step"])
    view = view_of(lite)
    found = panels.for_run(view)
    drawn = [name for panel in found for name in panel.series]
    assert {series.name for series in view.series} <= set(drawn)
    assert len(drawn) == len(set(drawn))
    sections = {panel.title: panel.section for panel in found}
    assert sections["accuracy"] == "your metrics: val"
    assert sections["plain"] == "your metrics"
    assert sections["amp.growth_tracker"] == "more measurements"
    assert [p.order for p in found] == sorted(p.order for p in found)
    assert all("/" not in panel.id for panel in found)


def test_both_themes_have_the_same_roles() -> None:
    """A role that only one of them knows would be invisible in the other."""
    theme = panels.theme()
    assert set(theme) == {"light", "dark"}
    assert set(theme["light"]) == set(theme["dark"])
    assert theme["light"]["nonfinite"] == "#A8002E"
    assert theme["dark"]["streak"] == "#F7BE4B"
