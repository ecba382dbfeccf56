"""Where gradients are read: one test per row of the design's table."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from halfscope.instrument.watched import WatchedOptimizer
from torch.nn.utils import clip_grad_norm_, clip_grad_value_  # bound before any watch, as user code is

Net = Callable[[], torch.nn.Sequential]


def true_norm(model: torch.nn.Module, divide_by: float = 1.0) -> float:
    grads = [p.grad.double().flatten() / divide_by for p in model.parameters() if p.grad is not None]
    return torch.cat(grads).norm().item()


def loss_of(model: torch.nn.Module, factor: float = 1.0) -> torch.Tensor:
    return model(torch.ones(2, 4)).float().pow(2).sum() * factor


def point(recorded: Any, optimizer: str = "SGD") -> tuple[str, str]:
    found = recorded.facts["gradient_points"][optimizer]
    return found["point"], found["clipped"]


@pytest.mark.parametrize("fused", [False, True])
def test_with_a_scaler_the_norm_is_unscaled(watching: Any, net: Net, fused: bool) -> None:
    """Unfused: at the return of our `unscale_`; fused: in the pre-hook, divided by the scale."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1000.0)
    watching(model, optimizer, scaler)
    scaler.scale(loss_of(model)).backward()
    expected = true_norm(model, 1000.0)
    scaler.step(optimizer)
    scaler.update()
    recorded = watching.read()
    assert math.isclose(recorded.series("grad.norm")[0], expected, rel_tol=1e-6)
    assert point(recorded) == (("scaled_step" if fused else "unscale"), "no")
    assert recorded.series("grad.norm_clipped") == {}


@pytest.mark.parametrize("fused", [False, True])
def test_a_user_called_unscale_gives_the_norm_before_and_after_clipping(watching: Any, net: Net, fused: bool) -> None:
    """The norm before clipping, and in its own series what the optimizer was handed."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    watching(model, optimizer, scaler)
    scaler.scale(loss_of(model)).backward()
    scaler.unscale_(optimizer)
    returned = clip_grad_norm_(model.parameters(), 0.01).item()
    handed = true_norm(model)
    scaler.step(optimizer)
    scaler.update()
    recorded = watching.read()
    assert recorded.series("grad.norm")[0] == returned
    assert math.isclose(recorded.series("grad.norm_clipped")[0], handed, rel_tol=1e-6)
    assert point(recorded) == ("unscale", "no")


@pytest.mark.parametrize("fused", [False, True])
def test_clipping_code_of_the_users_own_after_unscale_is_seen_in_the_second_series(
    watching: Any, net: Net, fused: bool
) -> None:
    """What the optimizer was handed is measured, not derived from torch's clipping functions."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    watching(model, optimizer, scaler)
    scaler.scale(loss_of(model)).backward()
    scaler.unscale_(optimizer)
    before = true_norm(model)
    for parameter in model.parameters():
        parameter.grad.mul_(0.25)
    scaler.step(optimizer)
    scaler.update()
    recorded = watching.read()
    assert math.isclose(recorded.series("grad.norm")[0], before, rel_tol=1e-6)
    assert math.isclose(recorded.series("grad.norm_clipped")[0], before / 4, rel_tol=1e-6)


@pytest.mark.parametrize("clip", [clip_grad_norm_, clip_grad_value_])
def test_without_a_scaler_clipping_is_seen_through_from_imports(
    watching: Any, net: Net, clip: Callable[[Any, float], Any]
) -> None:
    """At the entry of torch's clipping functions, whatever name they were imported under."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    loss_of(model).backward()
    before = true_norm(model)
    clip(model.parameters(), 0.01)
    after = true_norm(model)
    optimizer.step()
    recorded = watching.read()
    assert math.isclose(recorded.series("grad.norm")[0], before, rel_tol=1e-6)
    assert math.isclose(recorded.series("grad.norm_clipped")[0], after, rel_tol=1e-6)
    assert point(recorded) == ("clip", "no")


def test_clipping_in_another_thread_is_seen_where_it_clips_ours_and_else_touches_nothing(
    watching: Any, net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A training beside ours may clip while we are in a backward pass, which changes gradients without Python's lock:
    to look at them then can crash the process. A training that moves to another thread is seen there."""
    model, beside = net(), net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = watching(model, optimizer)
    loss_of(beside).backward()
    looks = []
    gradients = WatchedOptimizer.gradients
    monkeypatch.setattr(WatchedOptimizer, "gradients", lambda one: looks.append(one) or gradients(one))
    in_a_thread(lambda: clip_grad_norm_(beside.parameters(), 0.01))
    in_a_thread(lambda: clip_grad_value_(beside.parameters(), 0.01))
    assert looks == []
    returned = []
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model).backward()
        in_a_thread(lambda: returned.append(clip_grad_norm_(model.parameters(), 0.01).item()))
        optimizer.step()
    run.finish()
    recorded = watching.read()
    assert list(recorded.series("grad.norm").values()) == returned
    assert point(recorded) == ("clip", "no")


def in_a_thread(work: Callable[[], Any]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_clipping_layer_by_layer_still_gives_the_norm_before_any_of_it(watching: Any, net: Net) -> None:
    """The first call reads every gradient of the optimizer."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    loss_of(model).backward()
    before = true_norm(model)
    for parameter in model.parameters():
        clip_grad_norm_([parameter], 0.01)
    optimizer.step()
    assert math.isclose(watching.read().series("grad.norm")[0], before, rel_tol=1e-6)


def test_clipping_each_micro_batch_does_not_pass_for_the_steps_gradient(watching: Any, net: Net) -> None:
    """Gradients that grow after a clip are read again: at the next clip, or else in the pre-hook."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer)
    for clip_last in (True, False):
        for micro in range(2):
            loss_of(model).backward()
            before = true_norm(model)
            if micro == 0 or clip_last:
                clip_grad_norm_(model.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
        recorded_norm = before
    norms = watching.read().series("grad.norm")
    assert math.isclose(norms[1], recorded_norm, rel_tol=1e-6)


def test_without_clipping_the_pre_hook_reads(watching: Any, net: Net) -> None:
    """And says that clipping it cannot see may have come before."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    loss_of(model).backward()
    expected = true_norm(model)
    optimizer.step()
    recorded = watching.read()
    assert math.isclose(recorded.series("grad.norm")[0], expected, rel_tol=1e-6)
    assert point(recorded) == ("step", "maybe")


@pytest.mark.parametrize("as_keyword", [False, True])
def test_with_a_closure_the_gradient_is_the_closures_own(watching: Any, net: Net, as_keyword: bool) -> None:
    """Before the closure, `.grad` still holds the last step's gradient."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    expected: list[float] = []
    factors = iter((1.0, 100.0))

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model, next(factors))
        loss.backward()
        expected.append(true_norm(model))
        return loss

    for _ in range(2):
        assert isinstance(optimizer.step(closure=closure) if as_keyword else optimizer.step(closure), torch.Tensor)
    recorded = watching.read()
    norms = recorded.series("grad.norm")
    assert [math.isclose(norms[step], expected[step], rel_tol=1e-6) for step in range(2)] == [True, True]
    assert point(recorded) == ("closure", "maybe")


def test_lbfgs_gives_the_gradient_at_the_weights_the_step_starts_from(watching: Any, net: Net) -> None:
    """Its closure runs many times; a step is one call of `step`, and the first evaluation is its gradient."""
    model = net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.01, max_iter=4, tolerance_grad=0.0, tolerance_change=0.0)
    watching(model, optimizer)
    firsts: list[float] = []
    evaluations = 0

    def closure() -> torch.Tensor:
        nonlocal evaluations
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        if evaluations == 0:
            firsts.append(true_norm(model))
        evaluations += 1
        return loss

    for _ in range(3):
        evaluations = 0
        optimizer.step(closure)
        assert evaluations > 1
    recorded = watching.read()
    norms = recorded.series("grad.norm")
    assert list(norms) == [0, 1, 2]
    assert all(math.isclose(norms[step], firsts[step], rel_tol=1e-6) for step in range(3))
    assert list(recorded.series("opt.steps").values()) == [1.0, 2.0, 3.0]


def test_clipping_inside_a_closure_gives_both_norms(watching: Any, net: Net) -> None:
    """As Lightning does it."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    before, after = [], []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        before.append(clip_grad_norm_(model.parameters(), 0.01).item())
        after.append(true_norm(model))
        return loss

    for _ in range(2):
        optimizer.step(closure)
    recorded = watching.read()
    assert list(recorded.series("grad.norm").values()) == before
    assert all(
        math.isclose(found, expected, rel_tol=1e-6)
        for found, expected in zip(recorded.series("grad.norm_clipped").values(), after, strict=True)
    )
    assert point(recorded) == ("clip", "no")


def test_on_a_skip_the_bad_layers_are_named_before_clipping_spreads_them(watching: Any, net: Net) -> None:
    """Clipping one infinity makes every gradient zero or NaN; the reading comes before."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watching(model, optimizer, scaler)
    scaler.scale(loss_of(model)).backward()
    model[2].weight.grad[0, 3] = math.inf
    scaler.unscale_(optimizer)
    clip_grad_norm_(model.parameters(), 1.0)
    assert not model[0].weight.grad.isfinite().all() or not model[0].weight.grad.any()
    scaler.step(optimizer)
    scaler.update()
    (skip,) = watching.read().kinds("skip")
    assert skip.attributes["nonfinite"] == ["2.weight"]
    assert (skip.attributes["num_nonfinite"], skip.attributes["num_finite"]) == (1, 3)


def test_a_parameter_that_was_replaced_in_the_middle_of_a_group_is_read(watching: Any, net: Net) -> None:
    """Neither the length of the group nor its ends tell of it."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    expected = []
    for step in range(3):
        if step == 1:
            model[2].weight = torch.nn.Parameter(torch.full((1, 8), 3.0))
            optimizer.param_groups[0]["params"][2] = model[2].weight
        optimizer.zero_grad()
        loss_of(model).backward()
        expected.append(true_norm(model))
        optimizer.step()
    norms = watching.read().series("grad.norm")
    assert all(math.isclose(norms[step], expected[step], rel_tol=1e-6) for step in range(3))


@pytest.mark.parametrize("how", ["frozen", "replaced"])
def test_a_backward_pass_is_still_seen_when_the_layer_next_to_the_loss_changes(
    watching: Any, net: Net, how: str
) -> None:
    """What is logged between backward and step stays with its step, from the second step after the change on."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run = watching(model, optimizer)
    for step in range(6):
        if step == 2 and how == "frozen":
            model[2].requires_grad_(False)
        elif step == 2:
            model[2] = torch.nn.Linear(8, 1)
            optimizer.param_groups[0]["params"][2:] = list(model[2].parameters())
        optimizer.zero_grad()
        loss_of(model).backward()
        run.log(between=float(step))
        optimizer.step()
    recorded = watching.read()
    assert recorded.steps() == list(range(6))
    between = recorded.series("between")
    assert {step: between[step] for step in (0, 3, 4, 5)} == {0: 0.0, 3: 3.0, 4: 4.0, 5: 5.0}
    hooked = [p for p in model.parameters() if p._post_accumulate_grad_hooks]
    assert hooked == []
    assert recorded.kinds("agent_degraded") == []


def test_parameters_that_replaced_others_are_the_ones_that_are_read(watching: Any, net: Net) -> None:
    """A new head in the old one's place, in an optimizer with one group and in one with several."""
    for groups in (1, 2):
        model = net()
        layers = [list(model[0].parameters()), list(model[2].parameters())]
        given: Any = [*layers[0], *layers[1]] if groups == 1 else [{"params": layer} for layer in layers]
        optimizer = torch.optim.SGD(given, 0.01)
        run = watching(model, optimizer)
        for step in range(3):
            if step == 1:
                model[2] = torch.nn.Linear(8, 1)
                optimizer.param_groups[-1]["params"][-2:] = list(model[2].parameters())
            optimizer.zero_grad()
            model(torch.ones(2, 4)).pow(2).sum().backward()
            expected = torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None])
            optimizer.step()
        run.finish()
        seen = watching.read_all()[-1].series("grad.norm")
        assert math.isclose(seen[2], float(expected), rel_tol=1e-6)
