"""Real frameworks on a CPU, and what an independent look at each of their steps finds."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from tests.agent.instrument.conftest import Recorded, read_journal

# Frameworks warn of their own and of torch's deprecations when they are imported; that is theirs.
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import lightning.pytorch  # noqa: F401  # before any test is timed or counts warnings


@dataclass
class Seen:
    """One attempt, read by the training itself."""

    losses: list[float] = field(default_factory=list)
    """Of its micro-batches, raw."""
    scale: float | None = None
    norm: float = math.nan
    """Unscaled, before clipping, in float64."""
    applied: bool = True


def norm_of(parameters: Sequence[torch.Tensor]) -> float:
    """The gradients' norm, recomputed element by element in float64."""
    grads = [p.grad.double().flatten() for p in parameters if p.grad is not None]
    return float(torch.cat(grads).norm())


def assert_same(recorded: Recorded, seen: Sequence[Seen], *, start_step: int = 0) -> None:
    """Scale, skip, applied steps, loss and norm of every step are what the training saw."""
    steps = range(start_step, start_step + len(seen))
    assert recorded.steps() == list(steps)
    by_step = dict(zip(steps, seen, strict=True))
    assert recorded.series("loss") == pytest.approx(
        {s: sum(a.losses) / len(a.losses) for s, a in by_step.items()}, rel=1e-6, nan_ok=True
    )
    norms = recorded.series("grad.norm")
    assert norms == pytest.approx({s: a.norm for s, a in by_step.items()}, rel=1e-5, nan_ok=True)
    applied, total = {}, 0
    for step, attempt in by_step.items():
        total += attempt.applied
        applied[step] = float(total)
    assert recorded.series("opt.steps") == applied
    scales = {s: a.scale for s, a in by_step.items() if a.scale is not None}
    assert recorded.series("amp.scale") == scales
    skips = {s: float(not a.applied) for s, a in by_step.items() if a.scale is not None}
    assert recorded.series("amp.skipped") == skips


@pytest.fixture
def journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where every run of the test is written, and nothing is sent."""
    monkeypatch.setenv("HALFSCOPE_MODE", "offline")
    monkeypatch.setenv("HALFSCOPE_DIR", str(tmp_path / "journals"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "journals"


def only(directory: Path) -> Recorded:
    """The one run that was written."""
    (recorded,) = read_journal(directory)
    return recorded


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)


assert "lightning.pytorch" in sys.modules
