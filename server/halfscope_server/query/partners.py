"""Which runs a run may be compared with: the baseline it was started with, and others that lie near.

Owns how a name becomes a run, and the order of candidates. Must not import compare or panels. Invariant: a run is
never its own partner, and a baseline that is not there (any more) is told as such, not replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from halfscope_server.query.states import precision_of, precision_role
from halfscope_server.store.types import RunRow

FACT = "baseline"
"""Under it a run says what it is to be compared with: the id or name of another."""
MAX_CANDIDATES = 50
TOGETHER_US = 60_000_000
"""Of trainings that are started together any may come first: what begins within a minute is not an older run's turn."""

Nearness = Literal["baseline", "name", "tag", "project", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """What a run is to be compared with, by its own word; mirrors the API."""

    asked: str
    run: str | None
    """None: there is no such run here."""
    name: str
    project: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A run that another may be compared with; the typed API hands it out as it is."""

    id: str
    name: str
    project: str
    tags: list[str]
    precision: str
    precision_role: str
    state: str
    last_step: int | None
    created_us: int
    why: Nearness
    """What makes it near: it is the baseline that the run names; of the same project and name, a common tag, or only
    the project; none of these."""


class FindsRuns(Protocol):
    """What is needed of the store."""

    def get_run(self, run_id: str) -> RunRow | None: ...
    def runs_named(self, project: str, name: str) -> list[RunRow]: ...


def baseline_of(store: FindsRuns, row: RunRow) -> Baseline | None:
    """The run that `row` names as its baseline; None where it names none.

    An id is taken first. Of several runs of a name in its project the newest is meant that was there when it began, or
    began together with it, else the newest.
    """
    asked = str(row.facts.get(FACT) or "")
    if not asked:
        return None
    found = store.get_run(asked)
    if found is None or found.run_id == row.run_id:
        others = [other for other in store.runs_named(row.project, asked) if other.run_id != row.run_id]
        earlier = [other for other in others if other.created_us <= row.created_us + TOGETHER_US]
        found = next(iter(earlier or others), None)
    if found is None:
        return Baseline(asked=asked, run=None, name=asked, project=row.project)
    return Baseline(asked=asked, run=found.run_id, name=found.name, project=found.project)


def candidates(
    row: RunRow, rows: Sequence[RunRow], baseline: Baseline | None, search: str = ""
) -> tuple[list[Candidate], int]:
    """Runs to compare `row` with, nearest first and of equally near ones the newest, and how many there are in all.

    Args:
        rows: all runs, newest first.
        search: words that name, project, id or a tag must contain, whatever their case.
    """
    order: tuple[Nearness, ...] = ("baseline", "name", "tag", "project", "other")
    words = search.casefold().split()
    near: dict[Nearness, list[RunRow]] = {why: [] for why in order}
    for other in rows:
        if other.run_id != row.run_id and all(word in search_text(other) for word in words):
            near[_nearness(row, other, baseline)].append(other)
    found = [_candidate(other, why) for why in order for other in near[why]]
    return found[:MAX_CANDIDATES], len(found)


def search_text(row: RunRow) -> str:
    """What a search looks in."""
    return " ".join([row.name, row.project, row.run_id, *row.tags]).casefold()


def _nearness(row: RunRow, other: RunRow, baseline: Baseline | None) -> Nearness:
    if baseline is not None and other.run_id == baseline.run:
        return "baseline"
    if other.project != row.project:
        return "other"
    if other.name == row.name:
        return "name"
    return "tag" if set(other.tags) & set(row.tags) else "project"


def _candidate(row: RunRow, why: Nearness) -> Candidate:
    return Candidate(
        id=row.run_id,
        name=row.name,
        project=row.project,
        tags=list(row.tags),
        precision=precision_of(row),
        precision_role=precision_role(row),
        state=row.state,
        last_step=row.last_step,
        created_us=row.created_us,
        why=why,
    )
