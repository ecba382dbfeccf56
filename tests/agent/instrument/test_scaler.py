"""Watching a scaler by class swap."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
from halfscope.instrument import scaler as hooks


class Calls:
    """Notes every call."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.seen.append(name)


class Subclass(torch.amp.GradScaler):
    """A user's own scaler, with an override of its own."""

    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        super().update(new_scale)
        self.num_updates = getattr(self, "num_updates", 0) + 1


class PicklesItself(torch.amp.GradScaler):
    """A user's scaler with a custom `__reduce__`."""

    def __reduce__(self) -> Any:
        return type(self), ("cpu", 8.0)


def made(cls: type = torch.amp.GradScaler, init_scale: float = 8.0) -> Any:
    return cls("cpu", init_scale=init_scale)


def one_update(scaler: Any) -> None:
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()


@pytest.mark.parametrize("cls", [torch.amp.GradScaler, torch.cpu.amp.GradScaler, Subclass])
@pytest.mark.filterwarnings("ignore:.*GradScaler.args.*:FutureWarning")
def test_calls_are_seen_and_the_scaler_still_is_what_it_was(cls: type) -> None:
    """isinstance, name and module stay; every call is told in order."""
    scaler: Any = cls(init_scale=8.0) if cls is torch.cpu.amp.GradScaler else made(cls)
    calls = Calls()
    hooks.attach(scaler, calls)
    one_update(scaler)
    assert calls.seen == [
        "before_scale",
        "before_step",
        "before_unscale",
        "after_unscale",
        "after_step",
        "before_update",
        "after_update",
    ]
    assert isinstance(scaler, cls)
    assert (type(scaler).__name__, type(scaler).__module__) == (cls.__name__, cls.__module__)
    assert hooks.plain_class(scaler) is cls
    hooks.detach(scaler)
    assert type(scaler) is cls


@pytest.mark.parametrize("copied", [lambda s: pickle.loads(pickle.dumps(s)), copy.deepcopy])
@pytest.mark.parametrize("cls", [torch.amp.GradScaler, Subclass])
def test_copies_are_plain_and_independent(copied: Any, cls: type) -> None:
    """A copy has the plain class and the same scale, and what it does is not told of the original."""
    scaler = made(cls)
    calls = Calls()
    hooks.attach(scaler, calls)
    one_update(scaler)
    twin = copied(scaler)
    assert type(twin) is cls
    assert twin.get_scale() == scaler.get_scale()
    calls.seen.clear()
    one_update(twin)
    assert calls.seen == []
    one_update(scaler)
    assert calls.seen
    hooks.detach(scaler)


def test_a_scaler_with_its_own_reduce_keeps_it() -> None:
    """The user's way to pickle is asked as if the scaler were not watched."""
    scaler = made(PicklesItself)
    hooks.attach(scaler, Calls())
    twin = pickle.loads(pickle.dumps(scaler))
    assert type(twin) is PicklesItself
    assert twin.get_scale() == 8.0
    hooks.detach(scaler)


def test_overrides_of_a_subclass_run() -> None:
    """The swap stands in front of the user's methods, not in their place."""
    scaler = made(Subclass)
    hooks.attach(scaler, Calls())
    one_update(scaler)
    assert scaler.num_updates == 1
    hooks.detach(scaler)


def test_state_dict_round_trips_while_watched() -> None:
    """Checkpoints hold nothing of ours."""
    scaler = made()
    hooks.attach(scaler, Calls())
    one_update(scaler)
    state = scaler.state_dict()
    assert set(state) == {"scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker"}
    other = made()
    other.load_state_dict(state)
    assert other.get_scale() == scaler.get_scale()
    hooks.detach(scaler)


def test_errors_of_the_scaler_pass_through() -> None:
    """What torch says of a misuse, the user hears."""
    scaler = made()
    hooks.attach(scaler, Calls())
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 1).parameters(), 0.1)
    with pytest.raises(AssertionError, match="Attempted step"):
        scaler.step(optimizer)
    hooks.detach(scaler)


def test_attaching_twice_keeps_one_layer() -> None:
    """The second observer takes the first one's place."""
    scaler = made()
    first, second = Calls(), Calls()
    hooks.attach(scaler, first)
    hooks.attach(scaler, second)
    one_update(scaler)
    assert first.seen == []
    assert second.seen
    hooks.detach(scaler)
    assert type(scaler) is torch.amp.GradScaler
