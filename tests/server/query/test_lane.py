"""The strip's lower lane against loops over frames."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
from halfscope_server.query import RunView, Strip, Views, summarise, underflow_strip
from halfscope_server.query.lane import BELOW, CLASSES, FROM_1, FROM_5, FROM_20, NOT_MEASURED
from halfscope_server.store.store import Store

WriteRun = Callable[..., Any]
N = 1000
LOST = 2.0**-60
"""Lost at 2^16, and at any scale there is."""


def lost_share(share: float) -> np.ndarray:
    """A gradient of which FP16 would lose this share."""
    values = np.full(N, 0.01)
    values[: round(share * N)] = LOST
    return values


def lane(store: Store, bins: int, first: int | None = None, last: int | None = None) -> Strip:
    """The lower lane of run1."""
    view = Views(store).get("run1")
    assert view is not None
    found = underflow_strip(view, bins, first, last)
    assert found is not None
    return found


def cells(strip: Strip) -> list[int]:
    """Class per bin."""
    return np.frombuffer(base64.b64decode(strip.cells), np.uint8).tolist()


def write(write_run: WriteRun, shares: dict[int, dict[str, float]], num_steps: int, every: int, **facts: Any) -> None:
    """An FP32 run: steps to layers to the share that FP16 would lose."""
    writer = write_run()
    writer.points("loss", range(num_steps), 1.0)
    writer.facts(precision="FP32", sketches={"every": every}, **facts)
    for step, layers in shares.items():
        writer.frame(step, {name: lost_share(share) for name, share in layers.items()})
    writer.commit()


def test_cells_equal_a_loop_over_frames(lite: Store, write_run: WriteRun) -> None:
    """The worst layer of the worst frame of a cell; without a frame the one before, for one interval at most."""
    rng = np.random.default_rng(0)
    shares = {
        step: {"a": float(rng.choice([0, 0.005, 0.03, 0.1, 0.5])), "b": float(rng.choice([0, 0.02]))}
        for step in range(0, 1000, 20)
        if not 300 <= step < 500
    }
    write(write_run, shares, 1000, 20)
    for bins, first, last in ((10, 0, 999), (100, 0, 999), (333, 0, 999), (50, 290, 420), (1000, 100, 299)):
        strip = lane(lite, bins, first, last)
        num = last - first + 1
        for k, painted in enumerate(cells(strip)):
            cell = k * min(bins, num) // bins
            low = first + -(-cell * num // min(bins, num))
            high = first + -(-(cell + 1) * num // min(bins, num)) - 1
            inside = [step for step in shares if low <= step <= high]
            before = [step for step in shares if step < low]
            used = inside or ([before[-1]] if before and low - before[-1] <= 20 else [])
            worst = max((max(shares[step].values()) for step in used), default=-1.0)
            expected = (
                NOT_MEASURED
                if worst < 0
                else FROM_20
                if worst >= 0.2
                else FROM_5
                if worst >= 0.05
                else FROM_1
                if worst >= 0.01
                else BELOW
            )
            assert painted == expected, (bins, k, low, high)


def test_read_outs_name_the_worst_layer(lite: Store, write_run: WriteRun) -> None:
    """As the pages' example, and what was not measured is said."""
    shares = {step: {"block.3.weight": 0.008, "block.1.weight": 0.002} for step in range(0, 400, 50)}
    write(write_run, shares, 1000, 50)
    strip = lane(lite, 10)
    assert strip.texts[0] == "steps 0-99: would underflow 0.8% in block.3"
    assert strip.texts[9] == "steps 900-999: underflow not measured"
    assert cells(strip) == [BELOW] * 5 + [NOT_MEASURED] * 5
    assert strip.ranges == []
    assert strip.summary == "worst layer: would underflow 0.8% in block.3 at step 0"


def test_a_lane_without_underflow_is_calm_and_carries_no_texts(lite: Store, write_run: WriteRun) -> None:
    """A table of a hundred runs would carry them all."""
    write(write_run, {step: {"w": 0.0} for step in range(0, 1000, 10)}, 1000, 10)
    strip = lane(lite, 320)
    assert set(cells(strip)) == {BELOW}
    assert strip.texts == {}
    assert set(base64.b64decode(strip.heights)) == {38}


def test_violet_steps_up_in_height(lite: Store, write_run: WriteRun) -> None:
    """At 1, 5 and 20 percent, all of one colour; what is not measured has the hatched role."""
    shares = {0: {"w": 0.0}, 10: {"w": 0.01}, 20: {"w": 0.05}, 30: {"w": 0.2}}
    write(write_run, shares, 40, 10)
    strip = lane(lite, 40)
    heights = list(base64.b64decode(strip.heights))[::10]
    assert cells(strip)[::10] == [BELOW, FROM_1, FROM_5, FROM_20]
    assert heights == sorted(set(heights))
    assert heights[-1] == 255
    assert [c.role for c in CLASSES] == ["nodata", "nodata", "clean", "underflow", "underflow", "underflow"]


def test_ranges_run_from_the_first_bad_frame_to_the_last(lite: Store, write_run: WriteRun) -> None:
    """With the layer and step of the worst, so that a click leads there; of an FP16 run with its severity."""
    writer = write_run()
    writer.points("loss", range(1000), 1.0)
    writer.facts(precision="FP16-AMP", sketches={"every": 10})
    for step in range(0, 1000, 10):
        lost = {range(200, 300): 0.06, range(500, 600): 0.1}
        share = next((s for steps, s in lost.items() if step in steps), 0.0)
        share = 0.3 if step == 550 else share
        values = np.full(N, 1e-3)
        values[: round(share * N)] = 0.0
        floor = np.full(N, 1e-3)
        floor[: N // 2] = 2.0**-20 / 65536
        # While it loses, the rest lies near the floor: a frame with room would have lost nothing.
        near = np.where(values != 0, floor[::-1], 0.0) if share else values
        writer.frame(step, {"fc.weight": near, "fine": np.full(N, 1e-3)}, 65536.0)
    writer.commit()
    strip = lane(lite, 100)
    assert [(r.first_step, r.last_step, r.severity, r.layer, r.step) for r in strip.ranges] == [
        (200, 290, "warning", "fc.weight", 200),
        (500, 590, "critical", "fc.weight", 550),
    ]
    assert strip.ranges[1].text == "steps 500-590: underflow up to 30% in fc"


def test_a_run_without_layers_has_no_lower_lane(lite: Store, write_run: WriteRun) -> None:
    """Nor has one without a step."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.commit()
    view = Views(lite).get("run1")
    assert view is not None
    assert underflow_strip(view, 10) is None
    assert summarise(view, 10).underflow is None


def test_the_table_of_runs_has_the_lane(lite: Store, write_run: WriteRun) -> None:
    """Of the width asked for."""
    write(write_run, {0: {"w": 0.5}, 10: {"w": 0.5}}, 20, 10)
    view: RunView | None = Views(lite).get("run1")
    assert view is not None
    found = summarise(view, 40).underflow
    assert found is not None
    assert (found.lane, set(cells(found))) == ("underflow", {FROM_20})
