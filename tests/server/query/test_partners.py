"""Which run a baseline's name means."""

from __future__ import annotations

from halfscope_server.query.partners import baseline_of
from halfscope_server.store.types import RunRow

from tests.helpers.records import run_row

MINUTE_US = 60_000_000


class Kept:
    """Runs as the store gives them: newest first."""

    def __init__(self, *rows: RunRow) -> None:
        self.rows = sorted(rows, key=lambda row: -row.created_us)

    def get_run(self, run_id: str) -> RunRow | None:
        return next((row for row in self.rows if row.run_id == run_id), None)

    def runs_named(self, project: str, name: str) -> list[RunRow]:
        return [row for row in self.rows if (row.project, row.name) == (project, name)]


def at(minutes: float, run_id: str, name: str, **facts: str) -> RunRow:
    return run_row(run_id, project="p", name=name, facts=facts, created_us=round((60 + minutes) * MINUTE_US))


def meant(asking: RunRow, *others: RunRow) -> str | None:
    found = baseline_of(Kept(asking, *others), asking)
    assert found is not None
    return found.run


def test_the_newest_run_of_the_name_that_was_there_is_meant() -> None:
    """Not an older one, nor one that is trained later under the same name."""
    asking = at(0, "me", "fp16", baseline="fp32")
    others = [at(-30, "old", "fp32"), at(-10, "last", "fp32"), at(10, "later", "fp32")]
    assert meant(asking, *others) == "last"


def test_of_trainings_that_are_started_together_any_may_come_first() -> None:
    """A baseline that begins seconds after the run is meant, not that of the day before."""
    asking = at(0, "me", "fp16", baseline="fp32")
    assert meant(asking, at(-24 * 60, "yesterday", "fp32"), at(0.1, "together", "fp32")) == "together"


def test_without_one_that_was_there_the_newest_is_meant() -> None:
    """A baseline that was trained afterwards."""
    asking = at(0, "me", "fp16", baseline="fp32")
    assert meant(asking, at(5, "one", "fp32"), at(9, "two", "fp32")) == "two"


def test_a_run_is_never_its_own_baseline() -> None:
    """Also where it asks for its own name or id."""
    asking = at(0, "me", "fp16", baseline="fp16")
    assert meant(asking) is None
    assert meant(asking, at(-1, "before", "fp16")) == "before"
    asking = at(0, "me", "fp16", baseline="me")
    assert meant(asking) is None
