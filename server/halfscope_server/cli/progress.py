"""Progress of several trainings in a terminal: a bar per run, redrawn in place; a line now and then where there is no
terminal.

Pure text; must not import anything of the server. Invariant: without a terminal no escape sequence is written.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TextIO

BAR_CELLS = 24
LINE_EVERY_SHARE = 0.25
"""Without a terminal, a run is mentioned at every quarter."""


@dataclass(slots=True, kw_only=True)
class RunProgress:
    """Where one training stands."""

    name: str
    step: int = 0
    total: int = 0
    loss: float | None = None
    accuracy: float | None = None
    state: str = "starting"

    @property
    def share(self) -> float:
        return self.step / self.total if self.total else 0.0


def line(run: RunProgress, *, name_width: int, width: int) -> str:
    """One run in one line, cut to the width of the terminal."""
    full = round(run.share * BAR_CELLS)
    bar = "█" * full + "░" * (BAR_CELLS - full)
    parts = [f"{run.name:<{name_width}}", bar, f"{run.share:4.0%}"]
    if run.total:
        parts.append(f"step {run.step:,}/{run.total:,}")
    if run.loss is not None:
        parts.append("loss NaN" if run.loss != run.loss else f"loss {run.loss:.4g}")
    if run.accuracy is not None:
        parts.append(f"accuracy {run.accuracy:.1%}")
    if run.state != "training":
        parts.append(run.state)
    return "  ".join(parts)[:width]


@dataclass(slots=True, kw_only=True)
class Painter:
    """Draws all runs anew over what it drew before."""

    out: TextIO
    is_terminal: bool
    _num_lines: int = 0
    _mentioned: dict[str, tuple[int, str]] = field(default_factory=dict)

    def paint(self, runs: Iterable[RunProgress]) -> None:
        """Shows where the runs stand."""
        shown = list(runs)
        name_width = max((len(run.name) for run in shown), default=0)
        if self.is_terminal:
            width = shutil.get_terminal_size().columns - 1
            # Up over the former lines; each is cleared to its end as it is written over.
            text = f"\x1b[{self._num_lines}F" if self._num_lines else ""
            self.out.write(text + "".join(f"{line(run, name_width=name_width, width=width)}\x1b[K\n" for run in shown))
            self._num_lines = len(shown)
        else:
            for run in shown:
                mark = (int(run.share / LINE_EVERY_SHARE), run.state)
                if self._mentioned.get(run.name) != mark:
                    self._mentioned[run.name] = mark
                    self.out.write(line(run, name_width=name_width, width=200) + "\n")
        self.out.flush()
