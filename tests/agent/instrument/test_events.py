"""Events and series of less ordinary trainings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

Net = Callable[[], torch.nn.Sequential]
X = torch.ones(2, 4)


def scaler(init_scale: float = 1024.0, **options: Any) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=init_scale, **options)


def amp_step(model: Any, optimizer: Any, scaler: Any, factor: float = 1.0) -> None:
    optimizer.zero_grad()
    scaler.scale(model(X).float().pow(2).sum() * factor).backward()
    scaler.step(optimizer)
    scaler.update()


# ---- scale and skips --------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
def test_a_skip_tells_scale_class_and_layers(watching: Any, net: Net, fused: bool) -> None:
    """On both paths, though on the fused one the optimizer is called all the same."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, fused=fused)
    amp = scaler()
    watching(model, optimizer, amp)
    amp_step(model, optimizer, amp)
    amp_step(model, optimizer, amp, 1e38)
    recorded = watching.read()
    (skip,) = recorded.kinds("skip")
    assert (skip.step, skip.severity) == (1, "info")
    assert skip.attributes == {
        "class": "settling",
        "optimizer": "SGD",
        "scaler": "GradScaler",
        "scale": 1024.0,
        "scale_next": 512.0,
        "loss_finite": True,
        "nonfinite": ["0.weight", "0.bias", "2.weight", "2.bias"],
        "num_nonfinite": 4,
        "num_finite": 0,
    }
    (backoff,) = recorded.kinds("scale_backoff")
    assert (backoff.step, backoff.attributes["scale"], backoff.attributes["scale_next"]) == (1, 1024.0, 512.0)
    assert recorded.series("opt.steps") == {0: 1.0, 1: 1.0}


def test_growth_is_an_event_and_the_skip_after_it_a_probe(watching: Any, net: Net) -> None:
    """Through the whole chain, with a real scaler."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    amp = scaler(growth_interval=60)
    watching(model, optimizer, amp)
    for _ in range(60):
        amp_step(model, optimizer, amp)
    amp_step(model, optimizer, amp, 1e38)
    recorded = watching.read()
    (growth,) = recorded.kinds("scale_growth")
    assert (growth.step, growth.attributes["scale_next"]) == (59, 2048.0)
    (skip,) = recorded.kinds("skip")
    assert (skip.step, skip.attributes["class"], skip.attributes["scale"]) == (60, "probe", 2048.0)
    assert recorded.series("amp.growth_tracker")[58] == 59.0


def test_a_streak_names_its_origin_in_the_backward_pass(watching: Any) -> None:
    """Loss finite: the non-finite layer nearest to the loss; the layers beyond it stayed finite."""
    model = torch.nn.Sequential(*[torch.nn.Linear(4, 4) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    amp = scaler(1.0, growth_interval=10**6)
    watching(model, optimizer, amp)
    on = False
    # What an overflow in the backward pass of layer 1 does: its input gradient becomes infinite.
    model[1].register_forward_hook(
        lambda m, i, o: (o.register_hook(lambda grad: grad * (math.inf if on else 1.0)), o)[1]
    )
    for step in range(55):
        on = step >= 51
        amp_step(model, optimizer, amp)
    recorded = watching.read()
    (streak,) = recorded.kinds("bad_streak")
    assert (streak.step, streak.severity) == (53, "warning")
    attributes = streak.attributes
    assert (attributes["first_step"], attributes["num_skips"], attributes["reason"]) == (51, 3, "in_a_row")
    assert attributes["origin"] == "backward"
    assert attributes["origin_layer"] in ("1.weight", "1.bias")
    assert attributes["nonfinite"] == ["0.weight", "0.bias", "1.weight", "1.bias"]
    assert attributes["finite"] == ["2.weight", "2.bias", "3.weight", "3.bias"]
    assert [skip.attributes["class"] for skip in recorded.kinds("skip")] == ["single", "single", "streak", "streak"]
    assert [skip.severity for skip in recorded.kinds("skip")] == ["info", "info", "warning", "warning"]


def test_a_streak_with_a_nonfinite_loss_names_no_layer(watching: Any, net: Net) -> None:
    """Every layer is non-finite then, whatever overflowed in the forward pass."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    amp = scaler()
    watching(model, optimizer, amp)
    for _ in range(3):
        amp_step(model, optimizer, amp, math.inf)
    recorded = watching.read()
    (streak,) = recorded.kinds("bad_streak")
    assert streak.attributes["origin"] == "forward, not yet localised"
    assert streak.attributes["origin_layer"] == ""
    losses = recorded.kinds("loss_nonfinite")
    assert [(e.step, e.severity, e.attributes) for e in losses] == [
        (step, "warning", {"value": "Infinity", "caught": True}) for step in range(3)
    ]


def test_a_streak_that_passes_has_an_end(watching: Any, net: Net) -> None:
    """Fifty clean steps later."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    amp = scaler()
    watching(model, optimizer, amp)
    for step in range(60):
        amp_step(model, optimizer, amp, math.nan if step < 4 else 1.0)
    (end,) = watching.read().kinds("bad_streak_end")
    assert (end.step, end.severity) == (53, "info")
    assert end.attributes == {"first_step": 0, "last_step": 3, "num_skips": 4, "optimizer": "SGD"}


def test_a_scale_set_by_hand_is_no_growth(watching: Any, net: Net) -> None:
    """`update(new_scale)` completes the step like any update; between steps it is no step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    amp = scaler()
    watching(model, optimizer, amp)
    amp_step(model, optimizer, amp)
    amp.update(64.0)
    amp.scale(model(X).sum()).backward()
    amp.step(optimizer)
    amp.update(32.0)
    recorded = watching.read()
    assert recorded.steps() == [0, 1]
    assert recorded.series("amp.scale") == {0: 1024.0, 1: 64.0}
    assert recorded.series("amp.scale_next") == {0: 1024.0, 1: 32.0}
    assert [event.step for event in recorded.kinds("scale_set")] == [0, 1]
    assert recorded.kinds("scale_growth", "scale_backoff") == []


def test_changed_settings_of_the_scaler_are_facts(watching: Any, net: Net) -> None:
    """Init scale, factors and interval, as they are now."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    amp = scaler(512.0, growth_interval=100)
    watching(model, optimizer, amp)
    amp_step(model, optimizer, amp)
    amp.set_growth_interval(7)
    amp_step(model, optimizer, amp)
    (facts,) = watching.read().facts["scalers"]
    assert facts == {
        "name": "GradScaler",
        "class": "GradScaler",
        "enabled": True,
        "init_scale": 512.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 7,
    }


def test_a_disabled_scaler_is_as_if_there_were_none(watching: Any, net: Net) -> None:
    """No scale, no skip, its class untouched; the fact says it is there and off."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    amp = torch.amp.GradScaler("cpu", enabled=False)
    watching(model, optimizer, amp)
    assert type(amp) is torch.amp.GradScaler
    for _ in range(3):
        amp_step(model, optimizer, amp)
    recorded = watching.read()
    assert recorded.steps() == [0, 1, 2]
    assert recorded.series("opt.steps")[2] == 3.0
    assert not recorded.names() & {"amp.scale", "amp.skipped"}
    assert recorded.facts["scalers"] == [{"name": "GradScaler", "class": "GradScaler", "enabled": False}]


# ---- misuse -----------------------------------------------------------------------------------------


def test_a_forgotten_update_is_an_event_and_closes_the_step(watching: Any, net: Net) -> None:
    """A batch skipped by hand after `unscale_`: torch's own error comes through, and both steps are kept."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    amp = scaler()
    watching(model, optimizer, amp)
    amp_step(model, optimizer, amp)
    amp.scale(model(X).sum()).backward()
    amp.unscale_(optimizer)
    amp.scale(model(X).sum()).backward()
    with pytest.raises(RuntimeError, match="already been called"):
        amp.unscale_(optimizer)
    recorded = watching.read()
    (missing,) = recorded.kinds("update_missing")
    assert (missing.step, missing.severity) == (1, "warning")
    assert recorded.steps() == [0, 1]


def test_two_optimizers_that_step_before_one_update_are_no_misuse(watching: Any, net: Net) -> None:
    """The usual GAN loop scales the second loss after the first step."""
    first, second = net(), net()
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in (first, second)]
    amp = scaler()
    watching([first, second], optimizers, amp)
    for _ in range(3):
        for model, optimizer in zip((first, second), optimizers, strict=True):
            optimizer.zero_grad()
            amp.scale(model(X).sum()).backward()
            amp.step(optimizer)
        amp.update()
    recorded = watching.read()
    assert recorded.steps() == [0, 1, 2]
    assert recorded.kinds("update_missing") == []


class Failing(torch.optim.SGD):
    """Raises in some of its steps, after having been called."""

    fails = False

    def step(self, closure: Any = None) -> Any:
        if self.fails:
            raise RuntimeError("out of memory")
        return super().step(closure)


def test_a_step_that_raised_is_neither_applied_nor_withheld(watching: Any, net: Net) -> None:
    """The user catches it and goes on with `update()`: the attempt is there, the step is not counted, nothing was
    skipped by the scaler."""
    model = net()
    optimizer = Failing(model.parameters(), 0.01)
    amp = scaler()
    watching(model, optimizer, amp)
    for step in range(4):
        optimizer.zero_grad()
        optimizer.fails = step == 1
        amp.scale(model(X).sum()).backward()
        try:
            amp.step(optimizer)
        except RuntimeError:
            assert step == 1
        amp.update()
    recorded = watching.read()
    assert recorded.steps() == [0, 1, 2, 3]
    assert recorded.series("opt.steps") == {0: 1.0, 1: 1.0, 2: 2.0, 3: 3.0}
    assert recorded.series("amp.skipped") == {0: 0.0, 2: 0.0, 3: 0.0}
    assert recorded.series("amp.scale") == dict.fromkeys(range(4), 1024.0)
    assert recorded.kinds("skip", "agent_degraded") == []


@pytest.mark.parametrize("together", [True, False])
def test_a_second_scaler_that_is_found_is_in_step_with_the_first(watching: Any, net: Net, together: bool) -> None:
    """From its first attempt on, whether its step comes before or after the known scaler's update."""
    models = net(), net()
    optimizers = [torch.optim.SGD(model.parameters(), 0.01) for model in models]
    known, found = scaler(), torch.amp.GradScaler("cpu", init_scale=64.0)
    watching(list(models), optimizers, known)
    for step in range(5):
        scaled = [(known, *optimizers[:1], models[0]), (found, *optimizers[1:], models[1])]
        for amp, optimizer, model in scaled:
            optimizer.zero_grad()
            amp.scale(model(X).sum() * (1e38 if amp is found and step == 3 else 1.0)).backward()
            if not together:
                amp.step(optimizer)
                amp.update()
        if together:
            for amp, optimizer, _ in scaled:
                amp.step(optimizer)
            for amp, _, _ in scaled:
                amp.update()
    recorded = watching.read()
    assert recorded.steps() == [0, 1, 2, 3, 4]
    (event,) = recorded.kinds("unwatched_scaler")
    assert event.step == 0
    (skip,) = recorded.kinds("skip")
    assert skip.step == 3
    assert recorded.series("amp.scale", scaler="GradScaler") == {0: 64.0, 1: 64.0, 2: 64.0, 3: 64.0, 4: 32.0}
    second = recorded.facts["optimizers"][1]["name"]
    assert recorded.series("opt.steps", optimizer=second) == {0: 1.0, 1: 2.0, 2: 3.0, 3: 3.0, 4: 4.0}


@pytest.mark.parametrize("fused", [False, True])
def test_a_scaler_that_was_not_given_is_found_and_watched(watching: Any, net: Net, fused: bool) -> None:
    """From the first step it really makes; the event says so."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, fused=fused)
    amp = scaler()
    run = watching(model, optimizer)
    for _ in range(3):
        amp_step(model, optimizer, amp)
    amp_step(model, optimizer, amp, 1e38)
    run.finish()
    assert type(amp) is torch.amp.GradScaler
    recorded = watching.read()
    (event,) = recorded.kinds("unwatched_scaler")
    assert (event.step, event.severity, event.where) == (0, "warning", ["SGD"])
    assert recorded.steps() == [0, 1, 2, 3]
    assert recorded.series("amp.scale") == dict.fromkeys(range(4), 1024.0)
    assert list(recorded.series("amp.skipped").values()) == [0.0, 0.0, 0.0, 1.0]
    assert recorded.series("opt.steps") == {0: 1.0, 1: 2.0, 2: 3.0, 3: 3.0}
    assert recorded.facts["scalers"][0]["init_scale"] == 1024.0


def test_an_optimizer_made_anew_that_a_watched_scaler_steps_is_told_of(watching: Any, net: Net) -> None:
    """Once; and one that trains something else is nobody's business. What is known of each step is still recorded."""
    model, elsewhere = net(), net()
    amp = scaler()
    watching(model, first := torch.optim.SGD(model.parameters(), 0.01), amp)
    amp_step(elsewhere, torch.optim.SGD(elsewhere.parameters(), 0.01), amp)
    amp_step(model, first, amp)
    second = torch.optim.AdamW(model.parameters(), 0.01)
    for factor in (1.0, 1e38, 1.0):
        amp_step(model, second, amp, factor)
    recorded = watching.read()
    (event,) = recorded.kinds("unwatched_optimizer")
    assert (event.step, event.severity, event.attributes) == (2, "warning", {"optimizer": "AdamW"})
    assert list(recorded.series("amp.scale").values()) == [1024.0] * 4 + [512.0]
    assert recorded.series("opt.steps")[4] == 1.0
    assert recorded.kinds("skip") == []


@pytest.mark.parametrize(("dtype", "severity"), [(torch.float16, "critical"), (torch.bfloat16, "warning")])
def test_half_precision_parameters_under_a_scaler_are_told_of(
    watching: Any, net: Net, dtype: torch.dtype, severity: str
) -> None:
    """FP16 parameters make `unscale_` raise; BF16 ones leave no master weights."""
    model = net()
    model[2].to(dtype)
    watching(model, torch.optim.SGD(model.parameters(), 0.01), scaler())
    (event,) = watching.read().kinds("half_precision_parameters")
    assert (event.severity, event.where) == (severity, ["2.weight", "2.bias"])


# ---- without a scaler -------------------------------------------------------------------------------


def test_nonfinite_gradients_that_were_applied_are_critical(watching: Any, net: Net) -> None:
    """Nothing catches them without a scaler: the layers, once; and the loss, at every step."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    run = watching(model, optimizer)
    for step in range(4):
        optimizer.zero_grad()
        loss = model(X).sum() * (math.nan if step == 1 else 1.0)
        loss.backward()
        optimizer.step()
        run.step(loss=loss.detach())
    recorded = watching.read()
    applied = recorded.kinds("nonfinite_applied")
    assert [event.step for event in applied] == [1, 2, 3]
    assert all(event.severity == "critical" for event in applied)
    # A sum gives the last bias a gradient of one, whatever the weights are.
    assert [len(event.where) for event in applied] == [4, 3, 0]
    assert [event.attributes["num_finite"] for event in applied] == [0, 1, 1]
    losses = recorded.kinds("loss_nonfinite")
    assert [(e.step, e.severity, e.attributes["caught"]) for e in losses] == [
        (step, "critical", False) for step in (1, 2, 3)
    ]
    assert math.isnan(recorded.series("loss")[1])
    assert math.isnan(recorded.series("grad.norm")[2])


def test_a_norm_beyond_float32_squares_is_recomputed(watching: Any, net: Net) -> None:
    """Gradients of 1e25 and of 1e-30 have norms; an overflowing norm does not make a layer non-finite."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    watching(model, optimizer)
    expected = []
    for factor in (1e25, 1e-30):
        optimizer.zero_grad()
        (model(X).sum() * factor).backward()
        expected.append(torch.cat([p.grad.double().flatten() for p in model.parameters()]).norm().item())
        optimizer.step()
    recorded = watching.read()
    norms = recorded.series("grad.norm")
    assert all(math.isclose(norms[step], expected[step], rel_tol=1e-6) for step in range(2))
    assert recorded.kinds("nonfinite_applied") == []


def test_several_optimizers_without_a_scaler_follow_the_first(watching: Any, net: Net) -> None:
    """A step is complete at the step of the first optimizer given; the others fall inside."""
    models = {"generator": net(), "critic": net()}
    optimizers = {name: torch.optim.SGD(model.parameters(), 0.01) for name, model in models.items()}
    watching(models, optimizers)
    for _ in range(3):
        for _ in range(2):
            optimizers["critic"].zero_grad()
            models["critic"](X).sum().backward()
            optimizers["critic"].step()
        optimizers["generator"].zero_grad()
        models["generator"](X).sum().backward()
        optimizers["generator"].step()
    recorded = watching.read()
    assert recorded.steps() == [0, 1, 2]
    assert recorded.series("opt.steps", optimizer="generator") == {0: 1.0, 1: 2.0, 2: 3.0}
    assert recorded.series("opt.steps", optimizer="critic") == {0: 2.0, 1: 4.0, 2: 6.0}
    assert recorded.series("grad.norm", optimizer="critic").keys() == {0, 1, 2}
    assert recorded.facts["parameters"]["names"][0] == "generator.0.weight"


@pytest.mark.parametrize("clipping", [False, True])
def test_optimizers_that_step_one_after_the_other_share_the_step(watching: Any, net: Net, clipping: bool) -> None:
    """One backward pass, then a.step() and b.step(): both norms, both counts and the loss are of that very step."""
    model = net()
    halves = {"a": model[0], "b": model[2]}
    optimizers = {name: torch.optim.SGD(half.parameters(), 0.01, momentum=0.9) for name, half in halves.items()}
    run = watching(model, optimizers)
    expected: dict[str, list[float]] = {"a": [], "b": []}
    losses = []
    for step in range(4):
        loss = model(X).pow(2).sum() * (math.inf if step == 3 else 1.0)
        model.zero_grad()
        loss.backward()
        for name, optimizer in optimizers.items():
            norm = torch.nn.utils.get_total_norm([p.grad for p in halves[name].parameters() if p.grad is not None])
            expected[name].append(float(norm))
            if clipping:
                torch.nn.utils.clip_grad_norm_(halves[name].parameters(), 0.1)
            optimizer.step()
        run.step(loss=loss)
        losses.append(loss.item())
    recorded = watching.read()
    for name, norms in expected.items():
        seen = recorded.series("grad.norm", optimizer=name)
        assert seen.keys() == {0, 1, 2, 3}
        assert all(math.isclose(seen[step], norms[step], rel_tol=1e-6) for step in range(3))
        assert recorded.series("opt.steps", optimizer=name) == {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}
    assert list(recorded.series("loss").values()) == losses
    assert [event.attributes["optimizer"] for event in recorded.kinds("nonfinite_applied")] == ["a", "b"]
    assert recorded.facts["memory"]["optimizer_state_bytes"] == recorded.facts["memory"]["parameter_bytes"]


def test_a_loss_that_reached_no_weight_was_caught(watching: Any, net: Net) -> None:
    """A micro-batch that the user left out, and a share of the loss whose optimizer alone was withheld."""
    models = {"g": net(), "d": net()}
    optimizers = {name: torch.optim.SGD(model.parameters(), 0.01) for name, model in models.items()}
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watching(models, optimizers, scaler)
    for step in range(3):
        if step == 2:
            scaler.scale(models["g"](X).sum() * math.nan)  # looked at, and thrown away
        for name, model in models.items():
            optimizers[name].zero_grad()
            bad = step == 1 and name == "d"
            scaler.scale(model(X).sum() * (math.inf if bad else 1.0)).backward()
            scaler.step(optimizers[name])
        scaler.update()
    recorded = watching.read()
    losses = recorded.kinds("loss_nonfinite")
    assert [(event.step, event.attributes["caught"], event.severity) for event in losses] == [
        (1, True, "warning"),
        (2, True, "warning"),
    ]
    assert recorded.kinds("nonfinite_applied") == []


def test_what_the_scaler_is_given_is_left_for_the_scaler(watching: Any, net: Net) -> None:
    """A generator of losses can be read once: by the scaler. What is no loss raises what it always did."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    watching(model, optimizer, scaler)
    outputs = [model(X).sum(), model(X).pow(2).sum()]
    with pytest.raises(ValueError, match="outputs must be"):
        scaler.scale(3.0)  # type: ignore[call-overload]
    scaled = list(scaler.scale(output for output in outputs))
    assert [value.item() for value in scaled] == [output.item() * 8.0 for output in outputs]
    sum(scaler.scale(outputs)).backward()  # type: ignore[union-attr]
    scaler.step(optimizer)
    scaler.update()
    recorded = watching.read()
    assert recorded.series("loss") == {0: sum(output.item() for output in outputs)}
    assert recorded.kinds("agent_degraded") == []


def test_one_of_two_optimizers_skips_alone(watching: Any, net: Net) -> None:
    """Per optimizer: one stepped, one did not, and the shared scale backs off once."""
    models = {"g": net(), "d": net()}
    optimizers = {name: torch.optim.SGD(model.parameters(), 0.01) for name, model in models.items()}
    amp = scaler()
    watching(models, optimizers, amp)
    for factor in (1.0, 1e38):
        for name, optimizer in optimizers.items():
            optimizer.zero_grad()
            amp.scale(models[name](X).sum() * (factor if name == "d" else 1.0)).backward()
        for optimizer in optimizers.values():
            amp.step(optimizer)
        amp.update()
    recorded = watching.read()
    assert recorded.series("amp.skipped", optimizer="g") == {0: 0.0, 1: 0.0}
    assert recorded.series("amp.skipped", optimizer="d") == {0: 0.0, 1: 1.0}
    (skip,) = recorded.kinds("skip")
    assert (skip.where, skip.attributes["optimizer"]) == (["d"], "d")
    assert skip.attributes["nonfinite"][0] == "d.0.weight"
    assert len(recorded.kinds("scale_backoff")) == 1


def test_two_scalers_with_an_optimizer_each_make_one_attempt(watching: Any, net: Net) -> None:
    """Both updates are of the same step, also where only one of the two skips; nothing is told a step late."""
    models = {"g": net(), "d": net()}
    optimizers = {name: torch.optim.SGD(model.parameters(), 0.01) for name, model in models.items()}
    amps = {name: scaler() for name in models}
    watching(models, optimizers, amps)
    scales: dict[str, dict[int, float]] = {name: {} for name in models}
    losses = {}
    for step in range(4):
        losses[step] = 0.0
        for name, optimizer in optimizers.items():
            optimizer.zero_grad()
            loss = models[name](X).sum() * (1e38 if (step, name) == (2, "d") else 1.0)
            losses[step] += loss.item()
            scales[name][step] = amps[name].get_scale()
            amps[name].scale(loss).backward()
            amps[name].step(optimizer)
            amps[name].update()
    recorded = watching.read()
    assert recorded.steps() == [0, 1, 2, 3]
    for name in models:
        assert recorded.series("amp.scale", scaler=name) == scales[name]
    assert recorded.series("opt.steps", optimizer="g") == {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}
    assert recorded.series("opt.steps", optimizer="d") == {0: 1.0, 1: 2.0, 2: 2.0, 3: 3.0}
    assert recorded.series("loss") == pytest.approx(losses)
    assert [(skip.step, skip.where) for skip in recorded.kinds("skip")] == [(2, ["d"])]


def test_a_scaler_that_rests_does_not_hold_up_the_other(watching: Any, net: Net) -> None:
    """Of two scalers only one goes on: from then on each of its updates is an attempt."""
    models = {"g": net(), "d": net()}
    optimizers = {name: torch.optim.SGD(model.parameters(), 0.01) for name, model in models.items()}
    amps = {name: scaler() for name in models}
    watching(models, optimizers, amps)
    for step in range(5):
        for name, optimizer in optimizers.items():
            if name == "g" or step < 2:
                optimizer.zero_grad()
                amps[name].scale(models[name](X).sum()).backward()
                amps[name].step(optimizer)
                amps[name].update()
    recorded = watching.read()
    assert recorded.steps() == [0, 1, 2, 3, 4]
    assert sorted(recorded.series("amp.scale", scaler="g")) == [0, 1, 2, 3, 4]
    assert sorted(recorded.series("amp.scale", scaler="d")) == [0, 1]


# ---- parameters -------------------------------------------------------------------------------------


def test_sparse_gradients_have_the_norm_of_their_sum(watching: Any) -> None:
    """Duplicate indices add up before they are squared."""
    model = torch.nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SparseAdam(model.parameters(), 0.01)
    watching(model, optimizer)
    model(torch.tensor([1, 1, 4])).sum().backward()
    expected = model.weight.grad.to_dense().double().norm().item()
    optimizer.step()
    recorded = watching.read()
    assert math.isclose(recorded.series("grad.norm")[0], expected, rel_tol=1e-6)
    assert recorded.kinds("agent_degraded") == []


def test_frozen_shared_and_unused_parameters_are_no_trouble(watching: Any) -> None:
    """A shared one has one name; a frozen or unused one has no gradient and is no zero."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
    net.register_module("unused", torch.nn.Linear(2, 2))
    net[1].weight = net[0].weight
    net[1].bias.requires_grad_(False)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    watching(net, optimizer)
    for _ in range(2):
        optimizer.zero_grad()
        net[1](net[0](X)).sum().backward()
        optimizer.step()
    recorded = watching.read()
    facts = recorded.facts["parameters"]
    assert facts["names"] == ["0.weight", "0.bias", "1.bias", "unused.weight", "unused.bias"]
    assert (facts["num_elements"], facts["num_trainable"]) == (16 + 4 + 4 + 6, 16 + 4 + 6)
    assert recorded.facts["memory"]["gradient_bytes"] == (16 + 4) * 4
    assert list(recorded.series("grad.norm")) == [0, 1]
    assert recorded.kinds("agent_degraded") == []


def test_parameters_get_their_shape_in_the_first_forward_pass(watching: Any) -> None:
    """Lazy modules: the first step has its norm, and layers, sizes and order are told once they are known."""
    model = torch.nn.Sequential(torch.nn.LazyLinear(8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer, every=1)
    norms = []
    for _ in range(3):
        optimizer.zero_grad()
        model(X).sum().backward()
        norms.append(torch.cat([p.grad.double().flatten() for p in model.parameters()]).norm().item())
        optimizer.step()
    recorded = watching.read()
    assert list(recorded.series("grad.norm").values()) == pytest.approx(norms, rel=1e-6)
    assert recorded.facts["parameters"]["num_elements"] == 4 * 8 + 8 + 8 + 1
    assert recorded.facts["optimizers"][0]["num_parameters"] == 4 * 8 + 8 + 8 + 1
    shapes = {layer.name: layer.shape for layer in recorded.layers.values()}
    assert shapes == {"0.weight": [8, 4], "0.bias": [8], "2.weight": [1, 8], "2.bias": [1]}
    assert all(set(frame) == set(shapes) for frame in recorded.frames.values())
    assert len(recorded.frames) == 3
    assert recorded.kinds("agent_degraded") == []


def test_a_step_without_any_gradient_has_no_norm(watching: Any, net: Net) -> None:
    """Not available is an answer; zero is not."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    optimizer.step()
    recorded = watching.read()
    assert recorded.steps() == [0]
    assert recorded.series("grad.norm") == {}


def test_the_learning_rate_comes_when_it_changes(watching: Any, net: Net) -> None:
    """Per parameter group where there are several; the rate that the step used."""
    model = net()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[2].parameters(), "lr": torch.tensor(0.5)}]
    optimizer = torch.optim.SGD(groups, lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)
    watching(model, optimizer)
    for _ in range(5):
        optimizer.zero_grad()
        model(X).sum().backward()
        optimizer.step()
        schedule.step()
    recorded = watching.read()
    assert recorded.series("lr", group="0") == {0: 0.1, 2: 0.05, 4: 0.025}
    assert recorded.series("lr", group="1") == {0: 0.5, 2: 0.25, 4: 0.125}


def test_bytes_of_parameters_gradients_and_state_are_exact(watching: Any, net: Net) -> None:
    """AdamW keeps two moments and a step count for each tensor."""
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    watching(model, optimizer)
    model(X).sum().backward()
    optimizer.step()
    num_elements = 4 * 8 + 8 + 8 + 1
    assert watching.read().facts["memory"] == {
        "parameter_bytes": num_elements * 4,
        "gradient_bytes": num_elements * 4,
        "buffer_bytes": 0,
        "optimizer_state_bytes": 2 * num_elements * 4 + 4 * 4,
    }


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
def test_gradients_with_a_graph_keep_it(watching: Any, net: Net) -> None:
    """A gradient penalty differentiates through `.grad`; reading it adds nothing to the graph."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    watching(model, optimizer)
    loss = model(X).pow(2).sum()
    loss.backward(create_graph=True)
    grad = model[0].weight.grad
    optimizer.step()
    assert grad.grad_fn is not None
    assert watching.read().series("grad.norm")[0] > 0
    for parameter in model.parameters():
        parameter.grad = None
