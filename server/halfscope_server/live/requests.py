"""What a viewer asks to be kept informed of.

Must not import fastapi. Invariant: requests are hashable, so viewers who ask for the same share one computation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from halfscope_server.compare.types import Options
from halfscope_server.query.window import Window


@dataclass(frozen=True, slots=True, kw_only=True)
class RunsRequest:
    """The table of runs, now and whenever it changes."""

    strip_bins: int = 320


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """A run's summary, strip and some panels, now and whenever they change."""

    run: str
    panels: tuple[str, ...] = ()
    window: Window = field(default_factory=Window)
    strip_bins: int = 800
    ranks: bool = False
    """Also what is said of its ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareRequest:
    """Runs beside each other: the report and some panels, now and whenever one of the runs changes."""

    runs: tuple[str, ...]
    """The baseline first."""
    panels: tuple[str, ...] = ()
    window: Window = field(default_factory=Window)
    options: Options = field(default_factory=Options)


Request = RunsRequest | RunRequest | CompareRequest
