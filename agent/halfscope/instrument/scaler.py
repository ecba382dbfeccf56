"""Watching a GradScaler by swapping its class for a generated subclass of its own class.

Never patches instance methods (pickling fails, a deep copy drives the original) nor torch's classes (subclasses
escape).
Invariant: a pickle or deep copy of a watched scaler is a plain one, and detaching gives the very class back.
"""

from __future__ import annotations

import copyreg
from typing import Any, Protocol, cast

import torch


class ScalerObserver(Protocol):
    """Told of every call; none of these may raise."""

    def before_scale(self, outputs: Any) -> None: ...
    def before_unscale(self, optimizer: torch.optim.Optimizer) -> None: ...
    def after_unscale(self, optimizer: torch.optim.Optimizer) -> None: ...
    def before_step(self, optimizer: torch.optim.Optimizer) -> None: ...
    def after_step(self, optimizer: torch.optim.Optimizer) -> None: ...
    def before_update(self, new_scale: Any) -> None: ...
    def after_update(self, new_scale: Any) -> None: ...


_NEW_OBJECT: Any = copyreg.__newobj__  # type: ignore[attr-defined]
_RECONSTRUCT: Any = copyreg._reconstructor  # type: ignore[attr-defined]
"""The two ways in which pickle makes an object without calling its constructor."""

_observers: dict[int, ScalerObserver] = {}
"""By id of the scaler; an entry lives from attach to detach, during which the watch holds the scaler."""
_watched_classes: dict[type, type] = {}


def attach(scaler: torch.amp.GradScaler, observer: ScalerObserver) -> None:
    """Watch a scaler from now on.

    Raises:
        TypeError: its class cannot be subclassed in place (for example one written in C).
    """
    if not is_attached(scaler):
        scaler.__class__ = _watched_class(type(scaler))
    _observers[id(scaler)] = observer


def detach(scaler: torch.amp.GradScaler) -> None:
    """Give the scaler its own class back; nothing happens where it is not watched."""
    _observers.pop(id(scaler), None)
    if is_attached(scaler):
        scaler.__class__ = type(scaler).__bases__[0]


def is_attached(scaler: torch.amp.GradScaler) -> bool:
    """Whether its class is one of ours."""
    return type(scaler) in _watched_classes.values()


def plain_class(scaler: torch.amp.GradScaler) -> type:
    """The class the user gave it."""
    return type(scaler).__bases__[0] if is_attached(scaler) else type(scaler)


def _watched_class(base: type) -> type:
    made = _watched_classes.get(base)
    if made is None:
        made = _watched_classes[base] = _make(base)
    return made


def _make(base: type) -> type:
    plain = cast(Any, base)

    def scale(self: Any, outputs: Any) -> Any:
        if (observer := _observers.get(id(self))) is not None:
            observer.before_scale(outputs)
        return plain.scale(self, outputs)

    def unscale_(self: Any, optimizer: torch.optim.Optimizer) -> Any:
        observer = _observers.get(id(self))
        if observer is None:
            return plain.unscale_(self, optimizer)
        observer.before_unscale(optimizer)
        result = plain.unscale_(self, optimizer)
        observer.after_unscale(optimizer)
        return result

    def step(self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        observer = _observers.get(id(self))
        if observer is None:
            return plain.step(self, optimizer, *args, **kwargs)
        observer.before_step(optimizer)
        result = plain.step(self, optimizer, *args, **kwargs)
        observer.after_step(optimizer)
        return result

    def update(self: Any, *args: Any, **kwargs: Any) -> Any:
        observer = _observers.get(id(self))
        if observer is None:
            return plain.update(self, *args, **kwargs)
        new_scale = args[0] if args else kwargs.get("new_scale")
        observer.before_update(new_scale)
        result = plain.update(self, *args, **kwargs)
        observer.after_update(new_scale)
        return result

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        # For the moment of the call it is a plain scaler, so whatever its class does to be pickled stays right.
        watched = type(self)
        self.__class__ = base
        try:
            reduced = self.__reduce_ex__(protocol)
        finally:
            self.__class__ = watched
        if isinstance(reduced, tuple) and reduced[:2] == (_NEW_OBJECT, (base,)):
            # pickle refuses this form for an object whose class is another than the one named in it.
            return (_RECONSTRUCT, (base, object, None), *reduced[2:])
        return reduced

    overrides = {"scale": scale, "unscale_": unscale_, "step": step, "update": update, "__reduce_ex__": __reduce_ex__}
    body = {"__module__": base.__module__, "__qualname__": base.__qualname__, "__doc__": base.__doc__, **overrides}
    return type(base.__name__, (base,), body)
