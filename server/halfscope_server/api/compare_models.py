"""The typed API of comparisons: what is asked, and what is saved. What is answered is `compare.types`
and `query.partners.Candidate`, as they are.

Must not import the store: routes translate. Invariant: as in models.py; and what is asked is bounded before anything
is computed.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from halfscope_server.api.models import Model, Window
from halfscope_server.compare.types import MAX_MEMBERS, Alignment, Options
from halfscope_server.query.partners import Candidate

MAX_RUN_CHARS = 64
RunIds = Annotated[
    list[Annotated[str, Field(pattern=rf"^[0-9A-Za-z_-]{{1,{MAX_RUN_CHARS}}}$")]],
    Field(min_length=2, max_length=MAX_MEMBERS),
]
"""The baseline's first."""


class CompareOptions(Model):
    """How runs are compared; the answer's `options` say what it was."""

    metric: Annotated[str, Field(min_length=1, max_length=300)] = "loss"
    """Series that stands for quality."""
    align: Alignment = "attempts"
    """What one step of a run is set beside in another: the same attempt, the same number of applied steps, samples or
    tokens seen, or seconds since its first step."""
    tolerance: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] = 0.005
    """Relative difference that is never called one, 0..1."""

    def chosen(self) -> Options:
        """As the layers below know them."""
        return Options(metric=self.metric, align=self.align, tolerance_share=self.tolerance)


class CompareQuery(CompareOptions):
    """Which runs are compared, and how."""

    runs: Annotated[str, Field(min_length=1, max_length=MAX_MEMBERS * (MAX_RUN_CHARS + 1))]
    """Ids joined by commas, the baseline's first."""


class ComparePanelQuery(CompareQuery, Window):
    """A panel of a comparison over a window. `first` and `last` count what the runs are aligned by (with `time`,
    seconds since each run's first step); `x` is left out of account."""


class CompareCandidates(Model):
    """The nearest first, at most 50 of them."""

    candidates: list[Candidate]
    total: int
    """How many there are in all."""


class SavedMember(Model):
    """A run of a saved comparison as it stands now."""

    id: str
    name: str
    """Of a deleted run, what it was called."""
    project: str
    precision: str
    precision_role: str
    state: str
    """As in the table of runs; empty for a deleted run."""
    is_deleted: bool
    deleted_us: int | None = None


class SavedComparison(Model):
    """A comparison that somebody gave a name."""

    id: str
    name: str
    runs: list[SavedMember]
    """The baseline first. Where some are deleted the others can still be compared, as long as there are two."""
    options: Options
    created_us: int
    updated_us: int


class SavedComparisons(Model):
    """The last changed first."""

    comparisons: list[SavedComparison]


class SaveComparison(Model):
    """Body of saving or changing a comparison."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    runs: RunIds
    options: CompareOptions = CompareOptions()

    def model_post_init(self, context: Any, /) -> None:
        """A blank name or a run given twice is refused."""
        if not self.name.strip():
            raise ValueError("the name is blank; expected at least one visible character")
        if len(set(self.runs)) < len(self.runs):
            raise ValueError("a run is given twice; a run is compared with others, each given once")
