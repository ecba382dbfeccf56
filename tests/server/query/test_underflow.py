"""Underflow against the elements that were really lost, and nothing where nothing was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from halfscope.wire.messages import Layer, Layers
from halfscope_server.query import RunView, Views, Window, layer_tree, summarise, underflow_strip
from halfscope_server.query.frames import run_frames
from halfscope_server.query.health import judge
from halfscope_server.query.underflow import Underflow, default_layer, run_underflow, worst_of_frames, worst_recent
from halfscope_server.store.store import Store
from numpy.typing import NDArray

WriteRun = Callable[..., Any]
Gradients = dict[str, NDArray[np.float64]]


def newest(store: Store) -> RunView:
    """The newest view of run1."""
    view = Views(store).get("run1")
    assert view is not None
    return view


def found_in(view: RunView) -> Underflow:
    """Its underflow."""
    found = run_underflow(view)
    assert found is not None
    return found


def through_fp16(values: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """A gradient as a run has it that computed it in FP16 and unscaled it in FP32."""
    with np.errstate(over="ignore"):
        return np.asarray((values * scale).astype(np.float16).astype(np.float32) / np.float32(scale), np.float64)


def spread(seed: int, middle: float, n: int = 4000, width: float = 3.0) -> NDArray[np.float64]:
    """Values around 2^middle."""
    rng = np.random.default_rng(seed)
    return np.exp2(rng.normal(middle, width, n)) * rng.choice([-1.0, 1.0], n)


# ---- small networks, trained for real --------------------------------------------------------


def mlp(steps: int, *, relu: bool, scale: float | None) -> Iterator[Gradients]:
    """Gradients of a perceptron on random classes; with a scale, backward runs in FP16."""
    rng = np.random.default_rng(0)
    w1, w2 = rng.normal(0, 0.3, (20, 64)), rng.normal(0, 0.3, (64, 5))
    x_all, y_all = rng.normal(0, 1, (400, 20)), rng.integers(0, 5, 400)

    def half(a: NDArray[np.float64]) -> NDArray[np.float64]:
        return a if scale is None else a.astype(np.float16).astype(np.float64)

    for _ in range(steps):
        rows = rng.integers(0, 400, 16)
        x, y = x_all[rows], y_all[rows]
        before = x @ w1 - (2.0 if relu else 0.0)  # so low that in most batches some units are off for all rows
        h = np.maximum(before, 0) if relu else np.tanh(before)
        logits = h @ w2
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        p[np.arange(16), y] -= 1
        d2 = half(p / 16 * (scale or 1.0))
        dh = half(d2 @ w2.T) * ((before > 0) if relu else (1 - h * h))
        grads = {"fc1.weight": half(x.T @ dh), "fc1.bias": half(dh.sum(axis=0)), "fc2.weight": half(h.T @ d2)}
        grads = {name: g / (scale or 1.0) for name, g in grads.items()}
        w1 -= 0.1 * grads["fc1.weight"]
        w2 -= 0.1 * grads["fc2.weight"]
        yield grads


def embedding(steps: int, *, scale: float | None) -> Iterator[Gradients]:
    """Gradients of a table of 500 rows of which each batch touches few, and not always as many."""
    rng = np.random.default_rng(1)
    for _ in range(steps):
        grad = np.zeros((500, 16))
        rows = rng.integers(0, 500, rng.integers(5, 120))
        np.add.at(grad, rows, rng.normal(0, 1e-3, (rows.size, 16)))
        yield {"embed.weight": grad if scale is None else through_fp16(grad, scale)}


NETS: dict[str, Callable[[int, float | None], Iterator[Gradients]]] = {
    "tanh": lambda steps, scale: mlp(steps, relu=False, scale=scale),
    "relu": lambda steps, scale: mlp(steps, relu=True, scale=scale),
    "embedding": lambda steps, scale: embedding(steps, scale=scale),
}


@pytest.mark.parametrize("precision", ["FP32", "BF16-AMP", "FP16-AMP"])
@pytest.mark.parametrize("net", list(NETS))
def test_healthy_networks_report_none(lite: Store, write_run: WriteRun, net: str, precision: str) -> None:
    """ReLU units that are off and rows of a table that no token touched are zeros for another reason."""
    scale = 2.0**11 if precision == "FP16-AMP" else None
    writer, num_steps = write_run(), 120
    writer.points("loss", range(num_steps), 1.0)
    writer.facts(precision=precision)
    for step, grads in enumerate(NETS[net](num_steps, scale)):
        writer.frame(step, grads, scale or np.nan)
    writer.commit()
    view = newest(lite)
    shares = found_in(view).layer_shares()
    assert found_in(view).is_measured == (scale is not None)
    if net != "tanh":
        frames = run_frames(view)
        assert frames is not None
        zeros = frames.table.zeros / frames.table.n
        assert zeros.max() > 0.3
        assert np.ptp(zeros[:, zeros.max(axis=0).argmax()]) > 0.1, "it varies from batch to batch"
    assert np.nanmax(shares) < 0.01
    if scale is None:
        assert not np.isnan(shares).any(), "what is predicted is always known"
    strip = underflow_strip(view, 60)
    assert strip is not None
    assert strip.ranges == []
    assert judge(view).word == "healthy"
    assert not any("underflow" in chip.text and chip.tone != "plain" for chip in summarise(view).sentence)


def test_what_fp16_lost_is_what_is_reported(lite: Store, write_run: WriteRun) -> None:
    """The truth is the gradient before it went through FP16: shares agree within a percentage point, and on the frames
    of full scale nothing is said to be lost."""
    writer, scales = write_run(), [2.0**16] * 10 + [2.0**6] * 10 + [1.0] * 10
    writer.points("loss", range(300), 1.0)
    writer.facts(precision="FP16-AMP")
    truth = []
    for k, scale in enumerate(scales):
        values = spread(k, -23, width=2.0)
        values[:800] = 0.0
        seen = through_fp16(values, scale)
        truth.append(((seen == 0) & (values != 0)).sum() / (values != 0).sum())
        writer.frame(k * 10, {"fc.weight": seen}, scale)
    writer.commit()
    shares = found_in(newest(lite)).layer_shares()[:, 0]
    assert np.abs(shares - truth).max() < 0.01
    assert truth[0] < 0.001 < 0.1 < truth[-1]


def test_flushed_over_nonzero_is_not_what_an_fp16_run_is_judged_by(lite: Store, write_run: WriteRun) -> None:
    """On a run that computed in FP16 that quotient is 0 however much was lost."""
    writer = write_run()
    writer.points("loss", range(200), 1.0)
    writer.facts(precision="FP16-AMP")
    for k in range(20):
        scale = 2.0**16 if k < 10 else 1.0
        writer.frame(k * 10, {"w": through_fp16(spread(k, -23, width=2.0), scale)}, scale)
    writer.commit()
    view = newest(lite)
    frames = run_frames(view)
    assert frames is not None
    assert (frames.table.flushed[10:] == 0).all()
    assert (found_in(view).layer_shares()[10:, 0] > 0.1).all()


def test_without_a_frame_with_room_it_is_unknown_and_not_none(lite: Store, write_run: WriteRun) -> None:
    """In the tree, on the strip, in the sentence and in a module's share of what else is known."""
    writer = write_run()
    writer.points("loss", range(200), 1.0)
    writer.facts(precision="FP16-AMP")
    for k in range(20):
        writer.frame(k * 10, {"a.low": through_fp16(spread(k, -24), 1.0), "a.high": spread(k, 0)}, 1.0)
    writer.commit()
    view = newest(lite)
    assert np.isnan(found_in(view).layer_shares()[:, 0]).all()
    nodes = {node.name: node for node in layer_tree(view, Window()).nodes}
    assert (nodes["a.low"].worst, nodes["a.low"].severity) == ("–", "unknown")
    assert nodes["a.low"].note.startswith("not known yet")
    assert (nodes["a"].worst, nodes["a"].note) == ("0", "not known of 1 of 2 layers")

    alone = write_run("alone")
    alone.points("loss", range(200), 1.0)
    alone.facts(precision="FP16-AMP")
    for k in range(20):
        alone.frame(k * 10, {"a.low": through_fp16(spread(k, -24), 1.0)}, 1.0)
    alone.commit()
    only = Views(lite).get("alone")
    assert only is not None
    assert worst_recent(only) is None
    assert any(chip.text == "underflow not known yet" for chip in summarise(only).sentence)
    strip = underflow_strip(only, 20)
    assert strip is not None
    assert set(strip.texts.values()) == {strip.texts[k] for k in range(20)}
    assert all("not known yet" in text for text in strip.texts.values())


@pytest.mark.parametrize("precision", ["FP32", "FP16-AMP"])
def test_a_baseline_tells_what_a_run_without_room_does_not(lite: Store, write_run: WriteRun, precision: str) -> None:
    """The run begins at a scale far too small, and never has room; the same training in FP32, sketched less often, says
    which of its zeros are structural: shares agree with the truth within a percentage point, from the baseline's first
    frame to its last. What is all zero in both is no loss, and a baseline in FP16 tells nothing."""
    wide, low = write_run("wide"), write_run()
    wide.facts(precision=precision)
    low.facts(precision="FP16-AMP", baseline="wide")
    low.points("loss", range(400), 1.0)
    wide.points("loss", range(300), 1.0)
    truth = np.full((40, 3), np.nan)
    for k in range(40):
        masked, unused = spread(k, -24, width=2.0), np.zeros(500)
        masked[: 700 + 3 * (k % 5)] = 0.0  # units that are off, of which some come and go
        frame = {"a.masked": masked, "b.flushed": spread(k, -45), "c.unused": unused if k % 4 else unused + 1.0}
        seen = {name: through_fp16(values, 1.0) for name, values in frame.items()}
        low.frame(k * 10, seen, 1.0)
        if k % 2 == 0 and 2 <= k < 30:
            wide.frame(k * 10, frame)
        lost = [((seen[name] == 0) & (values != 0)).mean() for name, values in frame.items()]
        truth[k] = np.array(lost) / [max((values != 0).mean(), 1e-9) for values in frame.values()]
    wide.commit()
    low.commit()
    shares = found_in(newest(lite)).layer_shares()
    if precision == "FP16-AMP":
        assert np.isnan(shares[:, :2]).all()
        return
    assert np.isnan(shares[:2, :2]).all()
    assert np.isnan(shares[29:, :2]).all()
    assert np.abs(shares[2:29, :2] - truth[2:29, :2]).max() < 0.01
    assert (shares[2:29, 1] == 1.0).all()
    assert truth[2:29, 0].min() > 0.25
    assert not (shares[:, 2] > 0.0).any()
    assert "baseline" in found_in(newest(lite)).note


def test_a_layer_flushed_whole_is_said_to_be_lost_whole(lite: Store, write_run: WriteRun) -> None:
    """And makes the run unhealthy, with its name, until it is back."""
    writer = write_run()
    writer.points("loss", range(2000), 1.0)
    writer.facts(precision="FP16-AMP")
    for step in range(0, 2000, 10):
        gone = step >= 1900
        values = np.zeros(1000) if gone else through_fp16(spread(step, -8, 1000), 65536.0)
        writer.frame(step, {"head.weight": values, "fc.weight": spread(step, -8, 1000)}, 65536.0)
    writer.event("layer_flushed", 1900, "warning", where=["head.weight"])
    writer.commit()
    view = newest(lite)
    worst = worst_of_frames(view)
    assert worst is not None
    assert worst.share[-1] == 1.0
    health = judge(view)
    assert (health.word, health.severity) == ("unhealthy", "warning")
    assert any("every gradient of head.weight is zero since step 1,900" in reason for reason in health.reasons)
    assert not any("of the gradient of head" in reason for reason in health.reasons)  # the same in other words
    assert default_layer(view) == "head.weight"
    assert any(chip.text == "worst underflow 100% head" for chip in summarise(view).sentence)
    writer.points("loss", range(2000, 6000), 1.0)
    for step in range(2000, 6000, 50):
        values = through_fp16(spread(step, -8, 1000), 65536.0)
        writer.frame(step, {"head.weight": values, "fc.weight": spread(step, -8, 1000)}, 65536.0)
    writer.commit()
    health = judge(newest(lite))
    assert health.word == "healthy"
    assert any("it has recovered" in reason for reason in health.reasons)


@pytest.mark.parametrize("precision", ["FP16-AMP", "FP32"])
def test_an_expert_that_is_used_now_and_then_makes_no_run_unhealthy(
    lite: Store, write_run: WriteRun, precision: str
) -> None:
    """All zero in the newest frame, too; it has come back before, more than once."""
    writer = write_run()
    scale = 65536.0 if precision == "FP16-AMP" else None
    writer.points("loss", range(200), 1.0)
    writer.facts(precision=precision)
    for step in range(0, 200, 10):
        values = np.zeros(1000) if step in (40, 90, 100, 190) else spread(step, -8, 1000)
        writer.frame(
            step, {"experts.0.weight": values, "fc.weight": spread(step, -8, 1000)}, *([scale] if scale else [])
        )
    for step in (40, 90):
        writer.event("layer_flushed", step, "warning", where=["experts.0.weight"])
    writer.commit()
    view = newest(lite)
    assert judge(view).word == "healthy"
    worst = worst_of_frames(view)
    assert worst is not None
    assert np.nanmax(worst.share) == 0.0


def test_a_prediction_is_told_and_never_makes_a_run_unhealthy(lite: Store, write_run: WriteRun) -> None:
    """An FP32 run loses nothing; what FP16 would lose at 2^16 is said to be predicted, and equals a count."""
    writer, values = write_run(), spread(0, -38)
    writer.points("loss", range(100), 1.0)
    writer.facts(precision="FP32")
    for step in range(0, 100, 10):
        writer.frame(step, {"fc.weight": values})
    writer.commit()
    view = newest(lite)
    expected = (np.abs(values) * 65536.0 < 2.0**-25).mean()
    assert expected > 0.1
    np.testing.assert_allclose(found_in(view).layer_shares()[:, 0], expected)
    health = judge(view)
    assert (health.word, health.severity) == ("healthy", "info")
    assert "predicted" in health.reasons[0]
    (chip,) = [chip for chip in summarise(view).sentence if chip.anchor == "layers"]
    assert chip.text.startswith("predicted underflow")
    assert chip.text.endswith(" fc")
    assert (chip.tone, "scale 2¹⁶" in chip.tooltip) == ("info", True)
    strip = underflow_strip(view, 20)
    assert strip is not None
    assert {r.severity for r in strip.ranges} == {"info"}
    assert "would underflow" in strip.ranges[0].text


@pytest.mark.parametrize(
    ("precision", "scale", "is_measured"),
    [
        ("FP16-AMP", 1024.0, True),
        ("FP16", np.nan, True),
        ("mixed", 1024.0, True),
        ("mixed", np.nan, False),
        ("", 1024.0, True),
        ("", np.nan, False),
        ("FP32", 1024.0, False),
        ("TF32", np.nan, False),
        ("BF16-AMP", 1024.0, False),
        ("BF16", np.nan, False),
    ],
)
def test_the_number_follows_from_what_the_run_computes_in(
    lite: Store, write_run: WriteRun, precision: str, scale: float, is_measured: bool
) -> None:
    """A scaler alone proves nothing, and a missing one neither."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.facts(precision=precision)
    writer.frame(0, {"w": spread(0, -5)}, scale)
    writer.commit()
    assert found_in(newest(lite)).is_measured == is_measured


def test_pure_fp16_without_a_scaler_is_judged_at_its_own_size(lite: Store, write_run: WriteRun) -> None:
    """Gradients far below FP16's normal range have no room, though at the usual scale they would have."""
    writer = write_run()
    writer.points("loss", range(100), 1.0)
    writer.facts(precision="FP16")
    for step in range(0, 100, 10):
        small, large = through_fp16(spread(step, -20), 1.0), through_fp16(spread(step, -2), 1.0)
        writer.frame(step, {"small": small, "large": large})
    writer.commit()
    shares = found_in(newest(lite)).layer_shares()
    assert np.isnan(shares[:, 0]).all()
    assert (shares[:, 1] == 0).all()


def test_a_modules_share_is_that_of_its_elements_together(lite: Store, write_run: WriteRun) -> None:
    """Never the mean of its layers' shares: a small layer that loses all does not make half of a module lost."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.facts(precision="FP32")
    layers = {"m.large": spread(0, -5, 9000), "m.small": spread(1, -60, 1000), "n.mixed": spread(2, -41, 500)}
    writer.frame(0, layers)
    writer.commit()
    lost = {name: int((np.abs(v) * 65536.0 < 2.0**-25).sum()) for name, v in layers.items()}
    nodes = {node.name: node.worst for node in layer_tree(newest(lite), Window()).nodes}
    assert nodes["m.small"] == "100%"
    assert nodes["m"] == "10%"
    assert (lost["m.large"], lost["m.small"]) == (0, 1000)
    assert nodes["n"] == nodes["n.mixed"]


def test_the_worst_of_late_is_by_summed_counts(lite: Store, write_run: WriteRun) -> None:
    """One bad frame of a layer among twenty weighs a twentieth; what lies far back does not count."""
    writer = write_run()
    writer.points("loss", range(4000), 1.0)
    writer.facts(precision="FP32")
    bad, good = spread(0, -60, 1000), spread(1, -5, 1000)
    for step in range(0, 4000, 20):
        spike = step == 3800
        writer.frame(step, {"old": bad if step < 1000 else good, "spiky": bad if spike else good, "fine": good})
    writer.commit()
    worst = worst_recent(newest(lite))
    assert worst is not None
    assert (worst.name, worst.first_step, worst.last_step) == ("spiky", 3600, 3980)
    assert worst.share == pytest.approx(1 / 20)


@pytest.mark.parametrize(("loss_then", "word"), [(1.0, "healthy"), (np.nan, "unhealthy")])
def test_a_bad_input_counts_where_the_step_was_bad_too(
    lite: Store, write_run: WriteRun, loss_then: float, word: str
) -> None:
    """Missing values that a model replaces by itself are told, and make no run unhealthy."""
    writer = write_run()
    writer.points("loss", range(90), 1.0)
    writer.points("loss", range(90, 91), loss_then)
    writer.points("loss", range(91, 100), 1.0)
    writer.event("input_nonfinite", 90, "info", first_row=3, num_nan=2, argument="x")
    if not np.isfinite(loss_then):
        writer.event("loss_nonfinite", 90, "critical", value="NaN", caught=False)
    writer.commit()
    health = judge(newest(lite))
    assert health.word == word
    (reason,) = [reason for reason in health.reasons if reason.startswith("the input held NaN or Inf in 1 step")]
    assert reason.endswith("the step itself was finite") == (word == "healthy")


def test_an_fp16_run_that_has_declared_layers_and_sketched_none_has_no_underflow(
    lite: Store, write_run: WriteRun
) -> None:
    """Between the declaration and the first sketch nothing is known, and nothing that asks fails."""
    writer = write_run()
    writer.points("loss", range(10), 1.0)
    writer.facts(precision="FP16-AMP")
    writer.record(Layers([Layer(0, "m.weight", [10], "float32", "")]))
    writer.commit()
    view = newest(lite)
    found = found_in(view)
    assert found.is_measured
    assert found.lost.shape == found.known.shape == (0, 1)
    assert worst_recent(view) is None
    worst = worst_of_frames(view)
    assert worst is not None
    assert worst.share.shape == (0,)
    assert default_layer(view) == "m.weight"
    assert judge(view).word == "healthy"
