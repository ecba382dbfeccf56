"""What a check of fairness is, and the plain kind: one recorded value that should be the same.

Owns the contract between checks and those who gather them. Must not import the store's tables. Invariant: a value that
was not recorded agrees with nothing and differs from nothing: it is unknown.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from halfscope_server.compare.types import Agreement
from halfscope_server.query.format import MISSING, number
from halfscope_server.query.view import RunView

Confounds = Literal["quality", "speed", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Whether one run agrees with the baseline in one thing."""

    state: Agreement
    text: str = ""
    """In what it differs, or why that is unknown; `64 against 32`."""


class Check(Protocol):
    """One thing that runs should agree in."""

    @property
    def id(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def order(self) -> int:
        """Place in the list among those of the same state."""

    @property
    def confounds(self) -> tuple[Confounds, ...]:
        """What a difference makes impossible to attribute to precision."""

    @property
    def is_intended(self) -> bool:
        """Whether it is what is being compared."""

    @property
    def is_configuration(self) -> bool:
        """Whether runs that differ in it are no repeats of each other."""

    def words(self, view: RunView) -> str:
        """The run's value; `–` where it was not recorded."""

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        """A run against the baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCheck:
    """A check of one value per run that is the same or not."""

    id: str
    title: str
    order: int
    read: Callable[[RunView], Hashable | None]
    """None: not recorded."""
    tell: Callable[[Any], str] = str
    confounds: tuple[Confounds, ...] = ()
    is_intended: bool = False
    is_configuration: bool = True
    missing: str = "not recorded by the version of halfscope that watched the run"
    """Why it may be unknown."""

    def words(self, view: RunView) -> str:
        value = self.read(view)
        return MISSING if value is None else self.tell(value)

    def compare(self, baseline: RunView, other: RunView) -> Finding:
        expected, seen = self.read(baseline), self.read(other)
        if expected is None or seen is None:
            return Finding(state="unknown", text=self.missing)
        if expected == seen:
            return Finding(state="same")
        return Finding(state="different", text=f"{self.tell(seen)} against {self.tell(expected)}")


def fact(view: RunView, *path: str) -> Any:
    """A fact by its path, None where there is none: facts come from agents of any version."""
    return _within(view.row.facts, path)


def environment(view: RunView, *path: str) -> Any:
    """Likewise of what was known about the environment."""
    return _within(view.row.environment, path)


def _within(found: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        if not isinstance(found, Mapping):
            return None
        found = found.get(key)
    return found


def plain(value: Any) -> str:
    """Any recorded value in short words."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float():
            return number(value)
        case Mapping():
            return ", ".join(f"{key} {plain(item)}" for key, item in value.items())
        case list() | tuple():
            return ", ".join(map(plain, value))
        case None:
            return MISSING
        case _:
            return str(value)


def frozen(value: Any) -> Hashable:
    """Any recorded value as something that can be compared and hashed; order of keys does not count."""
    match value:
        case Mapping():
            return tuple(sorted((str(key), frozen(item)) for key, item in value.items()))
        case list() | tuple():
            return tuple(map(frozen, value))
        case _:
            return value if isinstance(value, Hashable) else str(value)
