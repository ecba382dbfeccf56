"""The layer tree against values formed by hand from the gradients that were written."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from halfscope_server.query import LayerNode, LayerTree, RunView, Views, Window, lane, layer_tree
from halfscope_server.query.frames import run_frames
from halfscope_server.query.layers import NONFINITE, VALUE
from halfscope_server.query.statistics import node_values, statistics
from halfscope_server.query.underflow import run_underflow
from halfscope_server.store.store import Store
from numpy.typing import NDArray

WriteRun = Callable[..., Any]
Values = NDArray[np.float64]


def newest(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


def by_name(tree: LayerTree) -> dict[str, LayerNode]:
    """Its nodes."""
    return {node.name: node for node in tree.nodes}


def spread(seed: int, middle: float = -10.0, n: int = 200) -> Values:
    """Values of many sizes, some zero."""
    rng = np.random.default_rng(seed)
    values = np.exp2(rng.normal(middle, 4, n)) * rng.choice([-1.0, 1.0], n)
    values[: rng.integers(0, n // 4)] = 0.0
    return values


SCALE = 2.0**14
FORMS: dict[str, Callable[[Values], float]] = {
    "underflow": lambda v: float((np.abs(v[v != 0]) * 65536.0 < 2.0**-25).mean()),
    "headroom": lambda v: 15 - float(np.floor(np.log2(np.abs(v).max() * 65536.0))),
    "norm": lambda v: float(np.sqrt((v**2).sum())),
    "zeros": lambda v: float((v == 0).mean()),
    "nonfinite": lambda v: float((~np.isfinite(v)).mean()),
}


@pytest.mark.parametrize("stat", list(FORMS))
def test_values_of_nodes_are_those_of_their_elements_together(lite: Store, write_run: WriteRun, stat: Any) -> None:
    """Every node and frame, and with frames added up: shares over all elements, the root mean square of norms, the
    least headroom."""
    writer, written = write_run(), []
    writer.points("loss", range(120), 1.0)
    writer.facts(precision="FP32")
    for k in range(12):
        layers = {"a.x": spread(k, -30), "a.y": spread(k + 50), "b": spread(k + 90, -40, 30)}
        if k % 5 == 2:
            del layers["a.y"]
        written.append(layers)
        writer.frame(k * 10, layers)
    writer.commit()
    view = newest(lite)
    frames, underflow = run_frames(view), run_underflow(view)
    assert frames is not None
    assert underflow is not None
    below = {"a": ("a.x", "a.y"), "a.x": ("a.x",), "a.y": ("a.y",), "b": ("b",)}
    for starts in (np.arange(12), np.array([0, 5, 10])):
        got = node_values(frames, underflow, stat, frames.tree.nodes, slice(0, 12), starts)
        for column, (low, high) in enumerate(zip(starts, [*starts[1:], 12], strict=True)):
            for row, node in enumerate(got.nodes):
                parts = [[layers[name] for name in below[node.name] if name in layers] for layers in written[low:high]]
                every = np.concatenate([v for part in parts for v in part] or [np.empty(0)])
                assert got.present[column, row] == (every.size > 0)
                if not every.size:
                    assert np.isnan(got.value[column, row])
                elif stat == "norm":
                    squares = [sum((v**2).sum() for v in part) for part in parts if part]
                    assert got.value[column, row] == pytest.approx(np.sqrt(np.mean(squares)))
                else:
                    assert got.value[column, row] == pytest.approx(FORMS[stat](every))


def test_the_worst_value_is_one_that_a_frame_has(lite: Store, write_run: WriteRun) -> None:
    """Largest share, least headroom, with its step and in words."""
    writer = write_run()
    writer.points("loss", range(100), 1.0)
    writer.facts(precision="FP16-AMP")
    for step in range(0, 100, 10):
        values = np.full(100, 2.0**-20)
        values[:5] = 0.0
        if step == 40:
            values[:30] = 0.0
        if step == 60:
            values[0] = 2.0**2
        writer.frame(step, {"m.w": values}, SCALE)
    writer.commit()
    view = newest(lite)
    node = {
        stat: by_name(layer_tree(view, Window(stat=stat)))["m.w"]  # type: ignore[arg-type]  # one of the literals
        for stat in ("zeros", "headroom", "norm", "nonfinite")
    }
    assert (node["zeros"].worst, node["zeros"].worst_step) == ("30%", 40)
    assert (node["headroom"].worst, node["headroom"].worst_step) == ("-1 bits", 60)
    assert (node["norm"].worst, node["norm"].worst_step) == ("4.00", 60)
    assert node["nonfinite"].worst == "0"
    assert by_name(layer_tree(view, Window(stat="headroom", last=50)))["m.w"].worst == "21 bits"


def test_nodes_say_what_they_are(lite: Store, write_run: WriteRun) -> None:
    """In forward order, with sizes; a layer that never had a gradient is there with the reason."""
    writer = write_run()
    writer.points("loss", range(100), 1.0)
    writer.facts(precision="FP32", parameters_order=["embed.weight", "block.0.fc.weight", "head.weight"])
    writer.frame(0, {"head.weight": spread(0, n=10), "embed.weight": spread(1, n=20), "block.0.fc.weight": spread(2)})
    for step in range(50, 100, 10):
        writer.frame(step, {"embed.weight": spread(step, n=20), "block.0.fc.weight": spread(step)})
    writer.commit()
    tree = layer_tree(newest(lite), Window(first=50))
    rows = [(n.name, n.label, n.depth, n.kind, n.elements, n.shape, n.open) for n in tree.nodes]
    assert rows == [
        ("embed", "embed", 0, "module", 20, [], True),
        ("embed.weight", "weight", 1, "parameter", 20, [20], False),
        ("block", "block", 0, "module", 200, [], True),
        ("block.0", "0", 1, "module", 200, [], True),
        ("block.0.fc", "fc", 2, "module", 200, [], False),
        ("block.0.fc.weight", "weight", 3, "parameter", 200, [200], False),
        ("head", "head", 0, "module", 10, [], True),
        ("head.weight", "weight", 1, "parameter", 10, [10], False),
    ]
    assert (tree.num_frames, tree.first_step, tree.last_step) == (6, 50, 99)
    head = by_name(tree)["head.weight"]
    assert (head.worst, head.worst_step, head.severity, head.note) == (
        "–",
        None,
        "unknown",
        "no gradient in any measured step",
    )
    assert tree.default_layer in {"embed.weight", "block.0.fc.weight"}
    assert "predicted" in tree.precision_note
    assert "2¹⁶" in tree.precision_note


def test_sparks_show_the_worst_of_each_bin(lite: Store, write_run: WriteRun) -> None:
    """Bins without a frame stay empty, but for those between frames as far apart as usual."""
    writer = write_run()
    writer.points("loss", range(640), 1.0)
    writer.facts(precision="FP32")
    bad = np.concatenate([np.full(900, 0.01), np.full(100, 2.0**-60)])
    for step in range(0, 320, 20):
        writer.frame(step, {"w": bad if 100 <= step < 200 else np.full(1000, 0.01)})
    writer.commit()
    node = layer_tree(newest(lite), Window()).nodes[0]
    classes = list(base64.b64decode(node.spark))
    assert len(classes) == 64
    assert classes[:10] == [lane.BELOW] * 10
    assert classes[10:20] == [lane.FROM_5] * 10
    assert classes[20:32] == [lane.BELOW] * 12
    assert classes[33:] == [lane.NOT_MEASURED] * 31
    assert len(base64.b64decode(node.spark_heights)) == 64


def test_nan_and_inf_are_as_grave_as_what_became_of_the_step(lite: Store, write_run: WriteRun) -> None:
    """A probe skip of a healthy scaler is no alarm; what was not withheld is critical."""
    for run, skip, severity in (
        ("probe", "probe", "info"),
        ("streak", "streak", "warning"),
        ("applied", "", "critical"),
    ):
        writer = write_run(run)
        writer.points("loss", range(100), 1.0)
        writer.facts(precision="FP16-AMP")
        for step in range(0, 100, 10):
            values = spread(step)
            if step == 50:
                values[0] = np.inf
            writer.frame(step, {"w": values}, SCALE)
        if skip:
            writer.skip(50, skip)
        writer.commit()
        view = Views(lite).get(run)
        assert view is not None
        for stat in ("nonfinite", "headroom"):
            node = layer_tree(view, Window(stat=stat)).nodes[0]  # type: ignore[arg-type]  # one of the literals
            assert (node.severity, node.worst_step) == (severity, 50)
            assert NONFINITE in base64.b64decode(node.spark)
        assert layer_tree(view, Window(stat="zeros")).nodes[0].severity == "ok"
        assert VALUE in base64.b64decode(layer_tree(view, Window(stat="zeros")).nodes[0].spark)


def test_an_empty_tree_says_why_and_what_to_do(lite: Store, write_run: WriteRun) -> None:
    """Before the first sketch, without sketches at all, after a run that ended too early, and beside the data."""
    writer = write_run()
    writer.points("loss", range(30), 1.0)
    writer.commit()
    assert "every=" in layer_tree(newest(lite), Window()).empty
    writer.facts(sketches={"every": 50})
    writer.commit()
    assert layer_tree(newest(lite), Window()).empty == "No sketches yet: first at step 50."
    writer.end("finished", 29)
    writer.commit()
    assert layer_tree(newest(lite), Window()).empty.startswith("The run ended before its first sketch")

    late = write_run("late")
    late.points("loss", range(200), 1.0)
    late.facts(sketches={"every": 50})
    late.frame(0, {"w": spread(0)})
    late.commit()
    view = Views(lite).get("late")
    assert view is not None
    assert layer_tree(view, Window()).empty == ""
    beside = layer_tree(view, Window(first=100, last=150))
    assert [node.note for node in beside.nodes] == ["no layer was sketched in these steps"]


def test_statistics_say_what_they_are(lite: Store, write_run: WriteRun) -> None:
    """In one sentence each; underflow says which of its numbers it is."""
    assert [stat.id for stat in statistics(None)] == ["underflow", "headroom", "nonfinite", "norm", "zeros"]
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.facts(precision="FP16-AMP")
    writer.frame(0, {"w": spread(0)}, SCALE)
    writer.commit()
    tree = layer_tree(newest(lite), Window())
    assert "measured, at least" in tree.stats[0].text
    assert all(stat.text.endswith(".") for stat in tree.stats)
