"""Watching into a real journal, and reading that journal back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import halfscope
import pytest
import torch

from tests.helpers.recorded import Recorded, read_journal
from tests.helpers.threads import on_one_thread


@dataclass
class Watching:
    """Starts runs that write into a directory of the test, and ends those that the test leaves on."""

    directory: Path
    runs: list[halfscope.Run] = field(default_factory=list)

    def __call__(self, model: Any, optimizer: Any, scaler: Any = None, **options: Any) -> halfscope.Run:
        run = halfscope.watch(model, optimizer, scaler, **{"mode": "offline", "directory": self.directory, **options})
        self.runs.append(run)
        return run

    def read(self) -> Recorded:
        """The one stream that was written; its run is finished first."""
        recorded = self.read_all()
        assert len(recorded) == 1
        return recorded[0]

    def read_all(self) -> list[Recorded]:
        for run in self.runs:
            run.finish()
        return read_journal(self.directory)


@pytest.fixture
def watching(tmp_path: Path) -> Iterator[Watching]:
    made = Watching(tmp_path / "journals")
    yield made
    for run in made.runs:
        run.finish()


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models run fastest, and the same everywhere, on one thread."""
    yield from on_one_thread()


@pytest.fixture
def net() -> Callable[[], torch.nn.Sequential]:
    """Makes the same small network at every call."""

    def make() -> torch.nn.Sequential:
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))

    return make


@pytest.fixture
def read() -> Callable[[Path], list[Recorded]]:
    """Reads journals that another process wrote."""
    return read_journal
