"""The charts of layers: what is served, against counts over the gradients that were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server import panels
from halfscope_server.panels.arrays import unpacked
from halfscope_server.panels.columns import places
from halfscope_server.panels.heatmap import CROSSES, DOTS, HATCHED, HEAT
from halfscope_server.panels.window import BAD_BARS, CHOSEN, LOST_LINE, OVER, SUB, ZERO_BARS
from halfscope_server.query import RunView, Span, Views, Window
from halfscope_server.query.exponents import exponents
from halfscope_server.query.layers import layer_tree
from halfscope_server.store.store import Store
from numpy.typing import NDArray

WriteRun = Callable[..., Any]
Values = NDArray[np.float64]
IDS = ("underflow-worst", "layers-heatmap", "window", "histogram")


def newest(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


def fill_of(view: RunView, panel_id: str, **window: Any) -> dict[str, Any]:
    """A panel's fill."""
    panel = panels.find(view, panel_id)
    assert panel is not None
    return panels.fill(view, panel, Window(**window))


def table_of(view: RunView, panel_id: str, **window: Any) -> dict[str, str]:
    """The first two columns of a panel's table."""
    panel = panels.find(view, panel_id)
    assert panel is not None
    return {row[0]: row[1] for row in panels.table(view, panel, Window(**window)).rows}


def spread(seed: int, n: int = 500) -> Values:
    """Values far below and above what FP16 holds, at scale 1, and some that are no numbers."""
    rng = np.random.default_rng(seed)
    values = np.exp2(rng.normal(-12, 9, n)).clip(2.0**-60, 2.0**30) * rng.choice([-1.0, 1.0], n)
    values[:30], values[30], values[31] = 0.0, np.nan, -np.inf
    return values


def write(
    write_run: WriteRun, frames: dict[int, dict[str, Values]], scale: float = 1.0, precision: str = "FP16-AMP"
) -> None:
    """Steps to gradients."""
    writer = write_run(name="fp16-digits")
    writer.points("loss", range(max(frames) + 10), 1.0)
    writer.facts(precision=precision, sketches={"every": 10})
    for step, gradients in frames.items():
        writer.frame(step, gradients, scale)
    writer.commit()


@pytest.mark.parametrize(("gradient", "scale"), [("seen", 2.0**3), ("true", 2.0**3), ("true", 2.0**-2)])
def test_cells_outside_the_lines_are_the_shares_in_the_table(
    lite: Store, write_run: WriteRun, gradient: str, scale: float
) -> None:
    """From the served arrays alone: colours back to shares, lines as they are drawn; equal to the gradients
    themselves, and to what is printed."""
    frames = {k * 10: {"w": spread(k)} for k in range(30)}
    write(write_run, frames, scale)
    view = newest(lite)
    fill = fill_of(view, "window", gradient=gradient)
    heat = fill["data"][HEAT]
    edges, cells = unpacked(heat["y"]), np.nan_to_num(10.0 ** unpacked(heat["z"]).astype(np.float64))
    lines = {name: unpacked(fill["data"][at]["y"])[0] for name, at in (("o", OVER), ("s", SUB), ("l", LOST_LINE))}
    assert unpacked(heat["x"]).tolist() == [*frames, 300]
    panel = panels.find(view, "window")
    assert panel is not None
    printed = panels.table(view, panel, Window(gradient=gradient)).rows  # type: ignore[arg-type]  # a literal
    for k, gradients in enumerate(frames.values()):
        w = gradients["w"]
        scaled = np.abs(w[np.isfinite(w) & (w != 0)]) * scale
        lost, below, over = (scaled < 2.0**-25).sum(), (scaled < 2.0**-14).sum(), (scaled >= 2.0**16).sum()
        assert cells[edges[:-1] < lines["l"], k].sum() * w.size == pytest.approx(lost, abs=1e-3)
        assert cells[edges[:-1] < lines["s"], k].sum() * w.size == pytest.approx(below, abs=1e-3)
        assert cells[edges[:-1] >= lines["o"], k].sum() * w.size == pytest.approx(over, abs=1e-3)
        percent = [float(cell.rstrip("%")) for cell in printed[k][2:5]]
        np.testing.assert_allclose(percent, np.array([lost, below - lost, over]) / w.size * 100, rtol=5e-3)
    shift = 0 if gradient == "seen" else np.log2(scale)
    assert list(lines.values()) == [16 - shift, -14 - shift, -25 - shift]
    zeros = unpacked(fill["data"][ZERO_BARS]["y"])
    np.testing.assert_allclose(zeros, [(g["w"] == 0).mean() for g in frames.values()])
    assert fill["data"][BAD_BARS]["text"] == ["1 NaN, 1 Inf"] * 30


def test_the_chart_says_how_it_is_read(lite: Store, write_run: WriteRun) -> None:
    """One sentence, and the zones named in place; short ones where there is no room."""
    write(write_run, {0: {"w": spread(0)}})
    view = newest(lite)
    texts = [note["text"].replace("<br>", " ") for note in fill_of(view, "window")["layout"]["annotations"]]
    assert texts[:3] == [
        "overflow from 2¹⁶ (largest value 65,504): becomes Inf",
        "subnormal below 2⁻¹⁴: fewer bits",
        "lost below 2⁻²⁵: becomes 0",
    ]
    (sentence,) = texts[3:]
    assert sentence.startswith(
        "A column is one measured step and a cell the share of elements of that size: FP16 keeps"
    )
    assert sentence.count(".") == 1
    narrow = fill_of(view, "window", width_px=370)["layout"]["annotations"]
    assert [note["text"] for note in narrow[:3]] == ["overflow from 2¹⁶", "subnormal below 2⁻¹⁴", "lost below 2⁻²⁵"]
    assert max(len(line) for line in narrow[3]["text"].split("<br>")) < 50


def test_a_run_without_a_scaler_says_at_what_scale_it_is_read(lite: Store, write_run: WriteRun) -> None:
    """Its own gradient, with the limits of the scale that a scaler begins with, and as a prediction."""
    write(write_run, {0: {"w": spread(0)}}, np.nan, "FP32")
    true = fill_of(newest(lite), "window")
    assert "would become Inf" in true["layout"]["annotations"][-1]["text"].replace("<br>", " ")
    assert "at scale 2¹⁶" in true["layout"]["annotations"][-1]["text"].replace("<br>", " ")
    assert "true gradient" in true["label"]


def test_one_frame_is_a_chart(lite: Store, write_run: WriteRun) -> None:
    """One column, as wide as the sampling interval, on an axis that is filled by it and counts whole steps."""
    write(write_run, {0: {"a.w": spread(0)}})
    view = newest(lite)
    for panel_id in IDS[1:3]:
        fill = fill_of(view, panel_id, first=0, last=0)
        assert unpacked(fill["data"][HEAT]["x"]).tolist() == [0, 10]
        axis = fill["layout"]["xaxis"]
        assert (axis["range"], axis["dtick"]) == ([-0.25, 1], 1)
    assert fill_of(view, "histogram")["headline"].startswith("step 0 · ")
    assert not any(fill_of(view, panel_id)["empty"] for panel_id in IDS[1:])


def test_before_the_first_sketch_every_chart_says_when_it_comes(lite: Store, write_run: WriteRun) -> None:
    """And a run that will never have any has no such charts."""
    writer = write_run()
    writer.points("loss", range(30), 1.0)
    writer.commit()
    assert not {panel.id for panel in panels.for_run(newest(lite))} & set(IDS)
    writer.facts(sketches={"every": 50})
    writer.commit()
    for panel_id in IDS:
        assert fill_of(newest(lite), panel_id)["empty"] == "No sketches yet: first at step 50."


def test_gaps_are_hatched_and_columns_end_after_one_interval(lite: Store, write_run: WriteRun) -> None:
    """In the window chart and over all rows of the heatmap."""
    write(write_run, {step: {"a.w": spread(step), "b": spread(1)} for step in (0, 10, 20, 100, 110)})
    view = newest(lite)
    for panel_id, rows in (("window", None), ("layers-heatmap", 3)):
        data = fill_of(view, panel_id)["data"]
        assert unpacked(data[HEAT]["x"]).tolist() == [0, 10, 20, 30, 100, 110, 120]
        assert np.isnan(unpacked(data[HEAT]["z"])[:, 3]).all()
        gap = {name: unpacked(data[HATCHED][name])[0] for name in ("x", "width", "base", "y")}
        assert (gap["x"], gap["width"]) == (65, 70)
        assert data[HATCHED]["text"][0] == "not measured"
        if rows:
            assert (gap["base"], gap["y"]) == (-0.5, rows)


def test_heatmap_cells_lie_on_the_fixed_scale(lite: Store, write_run: WriteRun) -> None:
    """Shares at 0, 0.1, 1, 5, 20, 50 and 100 percent are equally far apart on every run; rows are those asked for."""
    shares = [0, 0.001, 0.01, 0.05, 0.2, 0.5, 1.0]
    frames = {}
    for k, share in enumerate(shares):
        values = np.full(1000, 0.5)
        values[: round(share * 1000)] = 0.0
        frames[k * 10] = {"m.w": values, "n": np.full(10, 4.0)}
    write(write_run, frames)
    view = newest(lite)
    fill = fill_of(view, "layers-heatmap", stat="zeros", rows=("n", "m.w"))
    np.testing.assert_allclose(unpacked(fill["data"][HEAT]["z"]), [range(7), [0] * 7], atol=1e-6)
    np.testing.assert_allclose(unpacked(fill["data"][HEAT]["customdata"])[0], np.array(shares) * 100, rtol=1e-6)
    assert fill["layout"]["yaxis"]["ticktext"] == ["m.w", "n"]
    assert fill["layout"]["yaxis"]["range"] == [1.5, -0.5]
    assert fill["label"].endswith("zero share, worst 100% in m.w at step 60")
    bits = fill_of(view, "layers-heatmap", stat="headroom", rows=("n",))["data"][HEAT]
    assert (bits["zmin"], bits["zmax"], unpacked(bits["z"]).tolist()) == (-4, 16, [[13.0] * 7])
    log = fill_of(view, "layers-heatmap", stat="norm", rows=("n",))["data"][HEAT]
    np.testing.assert_allclose(unpacked(log["z"]), np.log10(4 * np.sqrt(10)), rtol=1e-6)


def test_rows_that_are_too_many_to_be_named_are_named_here_and_there(lite: Store, write_run: WriteRun) -> None:
    """A name stands at its own row, and no two over each other."""
    write(write_run, {0: {f"layer.{at}": spread(at) for at in range(100)}})
    rows = tuple(f"layer.{at}" for at in range(100))
    axis = fill_of(newest(lite), "layers-heatmap", rows=rows)["layout"]["yaxis"]
    assert 30 <= len(axis["tickvals"]) <= 44
    assert len(axis["tickvals"]) == len(axis["ticktext"])
    step = axis["tickvals"][1]
    names = [node.name for node in layer_tree(newest(lite), Window()).nodes if node.kind == "parameter"]
    assert axis["ticktext"] == names[::step]


def test_the_tree_says_how_the_window_chart_is_drawn(lite: Store, write_run: WriteRun) -> None:
    """Also of a run whose precision nobody has told, and whose loss scale says that some of it is FP16."""
    writer = write_run()
    writer.points("loss", range(100), 1.0)
    writer.points("amp.scale", range(100), 1024.0, kind="state")
    writer.frame(0, {"a.w": spread(0)}, 1024.0)
    writer.commit()
    view = newest(lite)
    window = exponents(view, Window())
    assert window is not None
    assert layer_tree(view, Window()).default_gradient == ("seen" if window.seen else "true") == "seen"


def test_heatmap_tells_unknown_from_absent_from_not_finite(lite: Store, write_run: WriteRun) -> None:
    """Hatched, a dot, a cross: none of them looks like a small number."""
    frames = {}
    for step in range(0, 100, 10):
        low = np.full(100, 2.0**-20)
        low[step // 10 :] = 2.0**-24
        fine = np.full(100, 1.0)
        if step == 50:
            fine[:3] = np.nan
        frames[step] = {"fine": fine, "low": low} | ({"rare": np.ones(5)} if step < 30 else {})
    write(write_run, frames)
    data = fill_of(newest(lite), "layers-heatmap")["data"]
    cells = unpacked(data[HEAT]["z"])
    assert (cells[0][~np.isnan(cells[0])] == 0).all()
    assert np.isnan(cells[1]).all()
    assert np.isnan(cells[2]).tolist() == [False] * 3 + [True] * 7
    assert unpacked(data[HATCHED]["base"]).tolist()[0] == 0.5
    assert "low: not known" in data[HATCHED]["text"][0]
    assert unpacked(data[DOTS]["y"]).tolist() == [2]
    assert data[DOTS]["text"] == ["rare: no gradient"]
    assert unpacked(data[CROSSES]["x"]).tolist() == [55]
    assert data[CROSSES]["text"] == ["fine, step 50: 3 elements NaN or Inf"]


def test_marks_of_a_run_that_is_full_of_nan_are_few_enough_to_draw(lite: Store, write_run: WriteRun) -> None:
    """Thousands of marked cells become stretches; no layer's marks vanish."""
    bad, good = np.array([np.nan, 1.0]), np.array([1.0, 1.0])
    frames = {step * 10: {f"l{k:02}": bad if (step + k) % 2 else good for k in range(40)} for step in range(120)}
    write(write_run, frames)
    data = fill_of(newest(lite), "layers-heatmap")["data"][CROSSES]
    rows = unpacked(data["y"])
    assert 40 <= rows.size <= 1000
    assert set(rows.tolist()) == set(range(40))


def test_the_worst_five_are_drawn_worst_first(lite: Store, write_run: WriteRun) -> None:
    """On the fixed scale, breaking off where nothing was measured, named without what all names end in."""
    frames = {}
    for step in (0, 10, 20, 60, 70):
        layers = {}
        for k in range(7):
            values = np.full(1000, 0.5)
            values[: 20 * k] = 2.0**-50
            layers[f"block.{k}.fc.weight"] = values
        frames[step] = layers
    write(write_run, frames, np.nan, "FP32")
    view = newest(lite)
    fill = fill_of(view, "underflow-worst")
    assert [trace["name"] for trace in fill["data"]] == [f"block.{k}.fc" for k in (6, 5, 4, 3, 2)]
    first = fill["data"][0]
    assert unpacked(first["x"]).tolist() == [0, 10, 20, 30, 60, 70, 80]
    assert first["customdata"][3] is None
    np.testing.assert_allclose([v for v in first["customdata"] if v is not None], 12)
    assert fill["headline"] == "12% block.6.fc"
    assert "predicted, at least" in fill["label"]
    assert table_of(view, "underflow-worst")["60"] == "12%"


def test_the_histogram_is_one_step_with_its_numbers(lite: Store, write_run: WriteRun) -> None:
    """Bars per power of two, what is apart beside them, and every number of the table counted again."""
    frames = {k * 10: {"w": spread(k)} for k in range(5)}
    write(write_run, frames, 8.0)
    view = newest(lite)
    w = frames[30]["w"]
    fill = fill_of(view, "histogram", step=33)
    bars, special = fill["data"]
    finite = w[np.isfinite(w)]
    scaled = np.abs(finite[finite != 0]) * 8
    exponents = np.floor(np.log2(scaled)).clip(-34, 19)
    for x, y in zip(unpacked(bars["x"]), unpacked(bars["y"]), strict=True):
        assert y == pytest.approx((exponents == x - 0.5).sum() / w.size * 100)
    np.testing.assert_allclose(unpacked(special["y"]), [6, 0.2, 0.2])
    rects = [shape for shape in fill["layout"]["shapes"] if shape["type"] == "rect"]
    low, high = fill["layout"]["xaxis"]["range"]
    assert [(r["x0"], r["x1"]) for r in rects] == [(16, high), (-25, -14), (low, -25)]
    numbers = table_of(view, "histogram", step=33)
    assert numbers["step"] == "30"
    assert numbers["elements"] == "500"
    assert numbers["zeros"] == "30 (6%)"
    assert numbers["lost below 2⁻²⁵"].startswith(f"{(scaled < 2.0**-25).sum()} (")
    assert numbers["subnormal"].startswith(f"{((scaled >= 2.0**-25) & (scaled < 2.0**-14)).sum()} (")
    assert numbers["overflow"].startswith(f"{(scaled >= 2.0**16).sum()} (")
    assert float(numbers["norm"].replace(",", "")) == pytest.approx(np.sqrt((finite**2).sum()), rel=5e-3)
    assert numbers["clipped before"] == "no"
    assert numbers["read"] == "when the scaler had unscaled it"
    assert fill_of(view, "window", step=33)["data"][CHOSEN]["visible"]
    assert not fill_of(view, "window")["data"][CHOSEN]["visible"]


def test_a_time_axis_has_the_frames_where_they_were(lite: Store, write_run: WriteRun) -> None:
    """In the viewer's wall clock, in milliseconds, ascending."""
    write(write_run, {step: {"w": spread(step)} for step in (0, 10, 20, 100)})
    view = newest(lite)
    steps = unpacked(fill_of(view, "window")["data"][HEAT]["x"])
    times = unpacked(fill_of(view, "window", x="time", utc_offset_min=60)["data"][HEAT]["x"])
    np.testing.assert_allclose(times, 1_700_000_000_000 + 3_600_000 + steps * 10)


def test_places_widen_no_column_beyond_its_interval() -> None:
    """Frames of skipped steps are as narrow as they are apart; what was not measured at either end is a gap too."""
    step = np.array([0, 3, 50, 100, 400])
    found = places(Window(), step, step, step * 1000, 50, Span(first_step=0, last_step=449))
    assert found.edges.tolist() == [0, 3, 50, 100, 150, 400, 450]
    assert found.column.tolist() == [0, 1, 2, 3, -1, 4]
    longer = Span(first_step=0, last_step=999)
    late = places(Window(), step + 200, step + 200, step * 1000, 50, longer)
    assert late.edges.tolist() == [0, 200, 203, 250, 300, 350, 600, 650, 1000]
    assert late.column.tolist() == [-1, 0, 1, 2, 3, -1, 4, -1]
    soon = places(Window(), step + 20, step + 20, step * 1000, 50, longer)
    assert (soon.edges[:2].tolist(), soon.column[:2].tolist()) == ([0, 20], [-1, 0])
    zoomed = places(Window(first=0), step + 20, step + 20, step * 1000, 50, longer)
    assert (zoomed.edges[0], zoomed.column[0]) == (20, 0), "the frame before may tell of these steps"
    timed = places(Window(x="time"), step + 200, step + 200, (step + 200) * 1000, 50, longer)
    np.testing.assert_allclose(timed.edges, late.edges)
    assert timed.column.tolist() == late.column.tolist()
