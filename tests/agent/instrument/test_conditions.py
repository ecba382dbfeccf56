"""The conditions that a run trains under: what is told of them, and what is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import halfscope
import pytest
import torch
from halfscope.instrument import conditions

Net = Callable[[], torch.nn.Sequential]


@pytest.fixture
def precision() -> Iterator[None]:
    """Whatever a test sets of torch's precision is set back."""
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> None:
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def test_seed_of_the_watch_and_whether_it_was_chosen(watching: Any, net: Net) -> None:
    """One that torch drew by itself is too long for anybody to have chosen."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(1234)
    watching(model, optimizer).finish()
    torch.seed()
    watching(model, optimizer).finish()
    drawn = torch.initial_seed()
    chosen, random = (recorded.facts for recorded in watching.read_all())
    assert (chosen["seed"], chosen["seed_is_set"]) == (1234, True)
    assert random["seed"] == str(drawn)
    assert "seed_is_set" not in random


def test_settings_are_those_that_the_first_step_ran_under(watching: Any, net: Net, precision: None) -> None:
    """Also where they were set after `watch`; each as torch itself tells it."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    watching(model, optimizer)
    torch.set_float32_matmul_precision("medium")
    train(model, optimizer, torch.ones(2, 4))
    found = watching.read().facts["settings"]
    assert found["float32_matmul_precision"] == "medium"
    assert found["cuda_matmul_allow_tf32"] is True
    assert found["deterministic_algorithms"] is False
    assert found["allow_fp16_reduced_precision_reduction"] is True
    assert found["cudnn_benchmark"] is torch.backends.cudnn.benchmark


def test_what_torch_refuses_to_tell_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old and new ways to set TF32 mixed: the others are told all the same."""

    def refuses() -> str:
        raise RuntimeError("mixed")

    monkeypatch.setitem(conditions._SETTINGS, "float32_matmul_precision", refuses)  # type: ignore[call-overload]
    found = conditions.settings()
    assert "float32_matmul_precision" not in found
    assert found["deterministic_algorithms"] is False


def test_hyperparameters_are_the_groups_own(watching: Any, net: Net) -> None:
    """Of every group, as it is when the run begins, without its parameters."""
    model = net()
    optimizer = torch.optim.AdamW(
        [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.5, "betas": (0.8, 0.9)}], lr=0.01
    )
    watching(model, optimizer)
    (told,) = watching.read().facts["optimizers"]
    first, second = told["groups"]
    assert (first["lr"], first["betas"], first["weight_decay"]) == (0.01, [0.9, 0.999], 0.01)
    assert (second["lr"], second["betas"], second["eps"]) == (0.5, [0.8, 0.9], 1e-8)
    assert "params" not in first


def test_tensors_among_the_hyperparameters_are_read_on_the_host_alone() -> None:
    """A learning rate on a device is not waited for."""
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=torch.tensor(0.25))
    assert conditions.hyperparameters(optimizer)[0]["lr"] == 0.25
    optimizer.param_groups[0]["lr"] = torch.empty((), device="meta")
    assert "lr" not in conditions.hyperparameters(optimizer)[0]


def test_compiled_is_told_of_modules_compiled_in_place_and_wrapped(net: Net) -> None:
    """And not of those that are not."""
    plain, wrapped, in_place = net(), torch.compile(net(), backend="eager"), net()
    in_place[0].compile(backend="eager")
    assert [conditions.is_compiled([each]) for each in (wrapped, in_place)] == [True, True]
    stats = torch._dynamo.utils.counters["stats"]  # type: ignore[attr-defined]
    before = stats.pop("unique_graphs", 0)
    assert not conditions.is_compiled([plain])
    stats["unique_graphs"] = 1
    assert conditions.is_compiled([plain])
    stats["unique_graphs"] = before


def test_weights_of_one_seed_agree_whatever_wraps_the_model(watching: Any, net: Net) -> None:
    """The fingerprint is of the weights at `watch`, and another one after a step."""
    wrapped = torch.compile(net(), backend="eager")
    plain = net()
    optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    watching(wrapped, torch.optim.SGD(wrapped.parameters(), 0.1))
    watching(plain, optimizer).finish()
    train(plain, optimizer, torch.ones(2, 4))
    watching(plain, optimizer)
    one, same, later = (recorded.facts["weights"] for recorded in watching.read_all())
    assert one == same
    assert later["digest"] != one["digest"]
    assert later["num_elements"] == sum(parameter.numel() for parameter in plain.parameters())


def test_baseline_is_told_as_it_was_given(watching: Any, net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, by a run of this program, by the environment; without one there is no such fact."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    first = watching(model, optimizer)
    first.finish()
    watching(model, optimizer, baseline="fp32 of monday").finish()
    watching(model, optimizer, baseline=first).finish()
    monkeypatch.setenv("HALFSCOPE_BASELINE", "from outside")
    watching(model, optimizer).finish()
    told = [recorded.facts.get("baseline") for recorded in watching.read_all()]
    assert told == [None, "fp32 of monday", first.id, "from outside"]


def test_a_baseline_that_is_no_run_is_refused(net: Net) -> None:
    """With what would be taken."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with pytest.raises(TypeError, match="the id or the name of a run"):
        halfscope.watch(model, optimizer, baseline=7, mode="disabled")  # type: ignore[arg-type]
