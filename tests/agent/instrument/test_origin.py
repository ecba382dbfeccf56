"""Where a non-finite gradient began."""

from __future__ import annotations

import pytest
import torch
from halfscope.instrument.origin import BackwardOrder, find
from halfscope.instrument.watched import WatchedOptimizer


def test_a_finite_loss_names_the_bad_layer_nearest_to_it() -> None:
    """Backward order runs from the loss to the input."""
    found = find({"1", "2", "0"}, ["4", "3", "2", "1", "0"], True)
    assert (found.origin, found.layer) == ("backward", "2")


def test_an_unknown_loss_counts_as_finite() -> None:
    """Without a loss the backward order is the best evidence there is."""
    assert find({"a"}, ["b", "a"], None).layer == "a"


def test_a_nonfinite_loss_names_nothing() -> None:
    """The head's gradient is non-finite then, whatever overflowed before it."""
    found = find({"a", "b"}, ["a", "b"], False)
    assert (found.origin, found.layer) == ("forward, not yet localised", "")


def test_no_bad_layer_is_no_origin() -> None:
    """A skip for a reason that the gradients do not show."""
    assert find(set(), ["a"], True).origin == "unknown"


def test_the_order_is_recorded_once_and_one_hook_stays() -> None:
    """After the first attempt the parameter that is reached first tells of each backward pass."""
    model = torch.nn.Sequential(*[torch.nn.Linear(2, 2, bias=False) for _ in range(3)])
    told: list[int] = []
    order = BackwardOrder(lambda parameter: told.append(1))
    order.attach(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    assert list(order.order) == [id(model[at].weight) for at in (2, 1, 0)]
    assert len(told) == 3
    order.settle()
    told.clear()
    model(torch.ones(1, 2)).sum().backward()
    assert len(told) == 1
    order.detach()
    assert all(parameter._post_accumulate_grad_hooks is None for parameter in model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    assert len(told) == 1


@pytest.mark.parametrize("how", ["frozen", "taken out"])
def test_a_hook_whose_parameter_gets_no_gradient_any_more_is_lost(how: str) -> None:
    """Then it is off, and setting hooks anew finds another; before that nothing is lost."""
    model = torch.nn.Sequential(*[torch.nn.Linear(2, 2, bias=False) for _ in range(3)])
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    optimizers = [WatchedOptimizer(0, "SGD", sgd, labelled=False)]
    told: list[int] = []
    order = BackwardOrder(lambda parameter: told.append(id(parameter)))
    order.attach(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    order.settle()
    assert not order.is_lost(optimizers)
    last = model[2].weight
    if how == "frozen":
        last.requires_grad_(False)
    else:
        del sgd.param_groups[0]["params"][2]
    assert order.is_lost(optimizers)
    assert last._post_accumulate_grad_hooks is None
    order.attach(optimizers[0].parameters())
    model(torch.ones(1, 2)).sum().backward()
    order.settle()
    told.clear()
    model(torch.ones(1, 2)).sum().backward()
    assert told == [id(model[1].weight)]
    assert not order.is_lost(optimizers)
    order.detach()


def test_a_users_own_hook_on_a_parameter_stays() -> None:
    """Only ours are taken off."""
    weight = torch.nn.Parameter(torch.ones(2))
    called: list[int] = []
    weight.register_post_accumulate_grad_hook(lambda parameter: called.append(1))
    order = BackwardOrder(lambda parameter: None)
    order.attach([weight])
    order.detach()
    weight.sum().backward()
    assert called == [1]
