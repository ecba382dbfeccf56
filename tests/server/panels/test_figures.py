"""What single charts show, against the values that were written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server import panels
from halfscope_server.panels import axes
from halfscope_server.panels.arrays import packed, unpacked
from halfscope_server.query import RunView, Views, Window
from halfscope_server.store.store import Store
from hypothesis import given
from hypothesis import strategies as st

WriteRun = Callable[..., Any]
BEGAN_US, STEP_US = 1_700_000_000_000_000, 10_000


def view_of(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


def figure_of(view: RunView, panel_id: str, **window: Any) -> dict[str, Any]:
    """A panel's figure."""
    panel = panels.find(view, panel_id)
    assert panel is not None
    return panels.figure(view, panel, Window(**window))


def drawn(figure: dict[str, Any], role: str | None = None, symbol: str | None = None) -> list[dict[str, Any]]:
    """Visible traces with their arrays."""
    found = []
    for trace, patch in zip(figure["skeleton"]["data"], figure["fill"]["data"], strict=True):
        fits = role in (None, trace["meta"]["role"]) and symbol in (None, trace.get("marker", {}).get("symbol"))
        if fits and patch.get("visible", True):
            found.append({**trace, **patch, "x": unpacked(patch["x"]), "y": unpacked(patch["y"])})
    return found


def test_loss_draws_the_values_and_the_learning_rate_on_the_right(lite: Store, write_run: WriteRun) -> None:
    """The line is what was written; the rate has an axis of its own."""
    value = np.linspace(2, 1, 100)
    writer = write_run(name="fp32-cnn")
    writer.points("loss", range(100), value)
    writer.points("lr", range(100), 0.1, kind="state")
    writer.facts(precision="FP32")
    writer.end("finished", 99)
    writer.commit()
    figure = figure_of(view_of(lite), "loss")
    (loss,) = drawn(figure, "fp32")
    assert loss["y"].tolist() == value.tolist()
    assert loss["x"].tolist() == list(range(100))
    (rate,) = drawn(figure, "muted")
    assert (rate["yaxis"], rate["line"]["shape"]) == ("y2", "hv")
    assert figure["fill"]["label"] == "Loss, run fp32-cnn, steps 0 to 99, now 1"
    assert figure["fill"]["layout"]["xaxis"]["range"] == [0, 99]


def test_a_loss_with_one_giant_spike_is_drawn_on_a_log_axis(lite: Store, write_run: WriteRun) -> None:
    """So that the rest is not a flat line; a viewer who wants it linear gets it linear."""
    value = np.full(500, 2.0)
    value[250] = 1e9
    writer = write_run()
    writer.points("loss", range(500), value)
    writer.commit()
    view = view_of(lite)
    assert figure_of(view, "loss")["fill"]["layout"]["yaxis"]["type"] == "log"
    assert figure_of(view, "loss", y="linear")["fill"]["layout"]["yaxis"]["type"] == "linear"


def test_nonfinite_steps_are_marked_at_the_top_and_nowhere_in_the_line(lite: Store, write_run: WriteRun) -> None:
    """With counts by kind on hover and in the label and the table."""
    value = np.full(100, 1.0)
    value[[10, 50, 51]] = [np.nan, np.inf, -np.inf]
    writer = write_run()
    writer.points("loss", range(100), value)
    writer.commit()
    view = view_of(lite)
    figure = figure_of(view, "loss")
    (marks,) = drawn(figure, "nonfinite")
    assert marks["x"].tolist() == [10, 50, 51]
    assert marks["text"] == ["step 10: 1 NaN", "step 50: 1 +Inf", "step 51: 1 -Inf"]
    assert (marks["y"] > 0.9).all()
    assert figure["fill"]["label"].endswith("3 values not finite")
    panel = panels.find(view, "loss")
    assert panel is not None
    cells = {row[0]: row[1] for row in panels.table(view, panel, Window()).rows}
    assert (cells["10"], cells["50"], cells["51"], cells["0"]) == ("NaN", "+Inf", "-Inf", "1")


def test_scale_is_drawn_in_powers_of_two_with_skips_above(lite: Store, write_run: WriteRun) -> None:
    """Exponents in steps, ticks as powers, probes quiet, streaks amber, growths below, and all said in the label."""
    scale = np.where(np.arange(300) < 100, 65536.0, 32768.0)
    writer = write_run(name="fp16-troubled")
    writer.points("amp.scale", range(300), scale, kind="state")
    writer.facts(precision="FP16-AMP")
    writer.skip(99, "probe")
    for step in (200, 220, 240):
        writer.skip(step, "streak")
    writer.event("scale_growth", 50)
    writer.commit()
    figure = figure_of(view_of(lite), "scale")
    (line,) = drawn(figure, "fp16")
    assert line["line"]["shape"] == "hv"
    assert list(zip(line["x"].tolist(), line["y"].tolist(), strict=True)) == [(0, 16), (100, 15), (299, 15)]
    ticks = figure["fill"]["layout"]["yaxis"]
    assert dict(zip(ticks["tickvals"], ticks["ticktext"], strict=True))[15] == "2¹⁵"
    assert drawn(figure, "quiet")[0]["x"].tolist() == [99]
    assert drawn(figure, "streak", "triangle-down")[0]["x"].tolist() == [200, 220, 240]
    assert drawn(figure, "info")[0]["x"].tolist() == [50]
    label = "Loss scale, run fp16-troubled, steps 0 to 299, now 2 to the 15th, 4 skips"
    assert figure["fill"]["label"] == label
    assert figure["fill"]["headline"] == "2¹⁵"


def test_marks_that_touch_are_joined_and_their_counts_add_up(lite: Store, write_run: WriteRun) -> None:
    """Fifty thousand skips on eight hundred pixels are at most two hundred marks."""
    writer = write_run()
    writer.points("amp.scale", range(50_000), 1.0, kind="state")
    for step in range(0, 50_000, 10):
        writer.skip(step, "single")
    writer.commit()
    (marks,) = drawn(figure_of(view_of(lite), "scale"), "quiet")
    assert marks["x"].size <= 200
    assert sum(int(text.split(": ")[1].split()[0].replace(",", "")) for text in marks["text"]) == 5000


def test_norms_are_logarithmic_and_zeros_are_not_drawn_on_it(lite: Store, write_run: WriteRun) -> None:
    """The axis reaches to the smallest positive value."""
    writer = write_run()
    writer.points("grad.norm", range(100), [0.0] * 50 + [1e-4] * 25 + [10.0] * 25)
    writer.commit()
    figure = figure_of(view_of(lite), "norm")
    axis = figure["fill"]["layout"]["yaxis"]
    assert axis["type"] == "log"
    low, high = axis["range"]
    assert -4.5 <= low <= -4
    assert 1 <= high <= 1.5
    assert drawn(figure)[0]["y"].min() == 1e-4
    assert figure["fill"]["headline"] == "10.0"


def test_the_norm_lies_over_the_clipped_one(lite: Store, write_run: WriteRun) -> None:
    """On a noisy chart the thin line would cover the one that the chart is about."""
    writer = write_run()
    for name in ("grad.norm", "grad.norm_clipped"):
        writer.points(name, range(100), 1.0)
    writer.commit()
    order = {t["legendgroup"]: t["zorder"] for t in figure_of(view_of(lite), "norm")["skeleton"]["data"][:-1]}
    assert order["before clipping"] > order["handed to the optimizer"]


@pytest.mark.parametrize(
    ("panel_id", "name", "unit", "value", "title", "number"),
    [
        ("memory", "memory.rss_bytes", "bytes", 3 * 2.0**30, "memory (GiB)", 3.0),
        ("step-time", "time.step_s", "s", 0.038, "time per step (ms)", 38.0),
        ("cost", "halfscope.cost_share", "share", 0.003, "share of step time (%)", 0.3),
        ("throughput", "throughput.samples_per_s", "samples/s", 1240.0, "samples/s", 1240.0),
    ],
)
def test_axes_count_in_the_unit_that_reads_best(
    lite: Store,
    write_run: WriteRun,
    panel_id: str,
    name: str,
    unit: str,
    value: float,
    title: str,
    number: float,
) -> None:
    """Bytes as GiB, seconds as ms, shares as percent; from zero up."""
    writer = write_run()
    writer.points(name, range(10), value, unit=unit)
    writer.commit()
    figure = figure_of(view_of(lite), panel_id)
    assert figure["fill"]["layout"]["yaxis"]["title"]["text"] == title
    assert figure["fill"]["layout"]["yaxis"]["range"][0] == 0
    assert drawn(figure)[0]["y"].tolist() == pytest.approx([number] * 10)


def test_a_time_axis_is_the_viewers_wall_clock(lite: Store, write_run: WriteRun) -> None:
    """Milliseconds moved by the offset from UTC."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.commit()
    figure = figure_of(view_of(lite), "loss", x="time", utc_offset_min=120)
    (line,) = drawn(figure)
    assert line["x"].tolist() == [(BEGAN_US + s * STEP_US) / 1000 + 7_200_000 for s in range(10)]
    assert figure["fill"]["layout"]["xaxis"]["type"] == "date"


def test_a_live_axis_stands_still_and_grows_by_a_quarter(lite: Store, write_run: WriteRun) -> None:
    """Between two of its lengths new steps do not move it; all steps lie on it."""
    writer, ends = write_run(), []
    views = Views(lite)
    for first in range(0, 2000, 100):
        writer.points("loss", range(first, first + 100), 1.0)
        writer.commit()
        view = views.get("run1")
        assert view is not None
        low, high = figure_of(view, "loss")["fill"]["layout"]["xaxis"]["range"]
        assert low == 0
        assert high >= first + 99
        ends.append(high)
    lengths = sorted(set(ends))
    assert len(lengths) < 16
    # Each is the one before it grown by a quarter, some number of times.
    growths = np.log(np.array(lengths[1:]) / lengths[0]) / np.log(1.25)
    assert np.abs(growths - np.round(growths)).max() < 0.05


def test_smoothing_puts_the_average_in_front_and_the_raw_line_behind(lite: Store, write_run: WriteRun) -> None:
    """Both are drawn; only the average is hovered."""
    writer = write_run()
    writer.points("loss", range(100), np.arange(100) % 2)
    writer.facts(precision="FP16-AMP")
    writer.commit()
    raw, smooth = drawn(figure_of(view_of(lite), "loss", smooth=0.9), "fp16")
    assert (raw["opacity"] < 1, raw["hoverinfo"], smooth["hoverinfo"]) == (True, "skip", "all")
    assert 0.3 < smooth["y"][-1] < 0.7
    assert set(raw["y"].tolist()) == {0.0, 1.0}


@given(st.floats(-1e12, 1e12), st.floats(0, 1e12))
def test_a_linear_range_holds_its_data_without_wasting_the_chart(low: float, extent: float) -> None:
    """Nothing lies outside, and the data fill at least half of it."""
    high = low + extent
    bottom, top = axes.linear_range(low, high)
    assert bottom <= low <= high <= top
    assert bottom < top
    if extent > max(abs(low), abs(high), 1e-290) * 1e-9:
        assert top - bottom <= 2.5 * (high - low)
    if low >= 0:
        assert bottom >= 0


@given(st.floats(5e-324, 1e300), st.floats(1, 1e6))
def test_a_log_range_holds_its_data(low: float, ratio: float) -> None:
    """In exponents to base ten."""
    high = low * ratio
    bottom, top = axes.log_range(low, high)
    assert bottom <= np.log10(low)
    assert np.log10(high) <= top


@given(st.lists(st.integers(-(2**62), 2**62), max_size=20))
def test_packed_arrays_come_back_as_they_were(values: list[int]) -> None:
    """Steps that do not fit 32 bits travel as float64, exact up to 2^53."""
    back = unpacked(packed(np.array(values, np.int64)))
    assert back.tolist() == [float(v) if max(map(abs, values)) >= 2**31 else v for v in values]
