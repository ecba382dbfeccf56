"""What an independent look at each step of a training finds, and holding a record to it."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.agent.instrument.conftest import Recorded

Read = Callable[[], list[Recorded]]
"""Every run that was written, oldest first."""


@dataclass
class Seen:
    """One attempt, read by the training itself."""

    losses: list[float] = field(default_factory=list)
    """Of its micro-batches, raw; the step's is their mean."""
    scale: float | None = None
    norm: float = math.nan
    """Unscaled, before clipping, in float64."""
    applied: bool = True
    rate: float = math.nan
    """Learning rate that its step is made with."""


def look_once(module: Any, name: str) -> None:
    """Frameworks look for packages at each training, and at each step: here, what is installed does not change."""
    setattr(module, name, functools.cache(getattr(module, name)))


def weights(module: torch.nn.Module) -> list[Any]:
    """Every parameter as plain numbers."""
    return [parameter.tolist() for parameter in module.parameters()]


def norm_of(parameters: Sequence[torch.Tensor]) -> float:
    """The gradients' norm, recomputed element by element in float64."""
    grads = [p.grad.double().flatten() for p in parameters if p.grad is not None]
    return float(torch.cat(grads).norm())


def assert_same(recorded: Recorded, seen: Sequence[Seen], *, start_step: int = 0) -> None:
    """Scale, skip, applied steps, loss and norm of every step are what the training saw."""
    by_step = dict(enumerate(seen, start_step))
    assert recorded.steps() == list(by_step)
    losses = {step: sum(each.losses) / len(each.losses) for step, each in by_step.items()}
    assert recorded.series("loss") == pytest.approx(losses, rel=1e-6, nan_ok=True)
    norms = {step: each.norm for step, each in by_step.items()}
    assert recorded.series("grad.norm") == pytest.approx(norms, rel=1e-5, nan_ok=True)
    num_applied = {step: float(sum(each.applied for each in seen[: at + 1])) for at, step in enumerate(by_step)}
    assert recorded.series("opt.steps") == num_applied
    scaled = {step: each for step, each in by_step.items() if each.scale is not None}
    assert recorded.series("amp.scale") == {step: each.scale for step, each in scaled.items()}
    assert recorded.series("amp.skipped") == {step: float(not each.applied) for step, each in scaled.items()}
    rates = [each.rate for each in seen]  # a series that is written where it changes
    changes = {at + start_step: rate for at, rate in enumerate(rates) if at == 0 or rate != rates[at - 1]}
    if not any(map(math.isnan, rates)):
        assert recorded.series("lr") == changes


def assert_same_record(one: Recorded, other: Recorded) -> None:
    """Of two trainings that did the same: the same series with the same values, but for what a clock says; the same
    facts and settings."""
    names, others = ({name for name in each.names() if not name.startswith(_CLOCKS)} for each in (one, other))
    assert names == others
    for name in names:
        assert one.series(name) == pytest.approx(other.series(name), rel=0, abs=0, nan_ok=True), name
    for fact in ("weights", "precision", "gradient_points", "scalers", "optimizers", "parameters"):
        assert one.facts.get(fact) == other.facts.get(fact), fact
    assert one.start is not None
    assert other.start is not None
    settings = [_without_times(each.start.config) for each in (one, other) if each.start is not None]
    assert settings[0] == settings[1]
    assert (one.end and one.end.outcome) == (other.end and other.end.outcome) == "finished"


_CLOCKS = ("halfscope.", "time.", "memory.", "throughput.", "host.")


def _without_times(settings: Mapping[str, Any]) -> dict[str, Any]:
    # Older Transformers put the time of day into the name of a folder.
    return {name: {**part, "logging_dir": ""} if isinstance(part, dict) else part for name, part in settings.items()}


def program_of(page: str) -> str:
    """The one program on a page of docs/; of at most ten lines but for imports and blank ones, as the pages promise."""
    docs = Path(__file__).parents[3] / "docs"
    (program,) = re.findall(r"```python\n(.*?)```", (docs / f"{page}.md").read_text("utf-8"), re.DOTALL)
    lines = [line for line in program.splitlines() if line and not line.startswith(("import ", "from "))]
    assert len(lines) <= 10
    return str(program)
