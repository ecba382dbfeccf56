"""What every integration of a framework has, and where integrations are found.

Must not import torch nor a framework when it is imported: `halfscope run` looks through the folder before the program
has set anything up.
Invariant: a framework that is missing or older than what was tested is told with the line that installs it.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from halfscope.instrument.run import Run

ENTRY_POINTS = "halfscope.integrations"
"""Other packages bring integrations under this group."""


class NotAvailable(ImportError):
    """The framework is not installed, or older than what was tested; the text says what to install."""


class WatchOptions(TypedDict, total=False):
    """Arguments of `halfscope.watch` that are not found in the framework."""

    project: str | None
    name: str | None
    config: Mapping[str, Any] | None
    tags: Sequence[str] | None
    precision: str | None
    baseline: str | Run | None
    start_step: int
    every: int | None
    budget_share: float | None
    mode: str | None
    server: str | None
    run_id: str | None
    directory: str | os.PathLike[str] | None


class Launching(Protocol):
    """What `halfscope run` offers to an integration."""

    def begin(self, model: Any, optimizer: Any, scaler: Any = None, **options: Any) -> Run:
        """As `watch`, with the options of the command line; an earlier run of the program ends."""
        ...

    def current(self) -> Run | None:
        """The run that is on, None while no training was noticed."""
        ...

    def describe(self, settings: Callable[[Sequence[Any]], Mapping[str, Any]]) -> None:
        """Asks for settings whenever a run begins that no framework begins, given the optimizers that it is of."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Integration:
    """One framework."""

    id: str
    title: str
    packages: Mapping[str, str]
    """Distributions of which one has to be there, to the lowest version that was tested."""
    made: Mapping[str, str]
    """Modules to the class in them whose new objects `halfscope run` is to adopt."""
    adopt: Callable[[Any, Launching], None]
    """Watches what such an object is going to train."""

    def require(self) -> None:
        """
        Raises:
            NotAvailable: none of its packages is installed in a version that was tested.
        """
        seen = []
        for name, lowest in self.packages.items():
            try:
                version = metadata.version(name)
            except metadata.PackageNotFoundError:
                continue
            if _numbers(version) >= _numbers(lowest):
                return
            seen.append(f"{name} {version}")
        first, lowest = next(iter(self.packages.items()))
        saw = " and ".join(seen) if seen else f"no package {' or '.join(map(repr, self.packages))}"
        raise NotAvailable(
            f"halfscope.integrations.{self.id} needs {self.title}: saw {saw}, expected at least {lowest}, the lowest "
            f"version it was tested with. Install it: pip install '{first}>={lowest}'"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0])[:3])


def found() -> dict[str, Integration]:
    """By id: every file of this folder with an `INTEGRATION`, then those of other packages.

    Raises:
        ValueError: two have one id.
    """
    package = "halfscope.integrations"
    folder = importlib.import_module(package)
    items = [
        getattr(importlib.import_module(f"{package}.{module.name}"), "INTEGRATION", None)
        for module in pkgutil.iter_modules(folder.__path__)
    ]
    items += [point.load() for point in metadata.entry_points(group=ENTRY_POINTS)]
    integrations: dict[str, Integration] = {}
    for item in items:
        if item is None:
            continue
        if item.id in integrations:
            raise ValueError(f"integration {item.id!r} is there twice; keep one of them")
        integrations[item.id] = item
    return integrations


def with_base(cls: type, bases: tuple[type, ...]) -> type:
    """A callback's class as a subclass of the framework's own, which is not imported before a callback is made."""
    if all(issubclass(cls, base) for base in bases):
        return cls
    key = cls, bases
    made = _with_bases.get(key)
    if made is None:
        body = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
        made = _with_bases[key] = type(cls.__name__, (cls, *bases), body)
    return made


def without_base(cls: type) -> type:
    """The class that `with_base` was given."""
    return next((plain for (plain, _), made in _with_bases.items() if made is cls), cls)


_with_bases: dict[tuple[type, tuple[type, ...]], type] = {}
