"""How members fared with their numbers, against what the trainings are known to have done, and counted by hand."""

from __future__ import annotations

import numpy as np
from halfscope_server.compare import stability
from halfscope_server.compare.comparison import Comparison
from halfscope_server.compare.types import Stability
from halfscope_server.query import Views
from halfscope_server.store.store import Store

from tests.helpers.compared_trainings import NUM_OUTLIERS, RECIPES, TROUBLE_STEP
from tests.helpers.comparing import Recordings
from tests.server.conftest import RunWriter


def _counted(recordings: Recordings, *names: str) -> list[Stability]:
    return stability.count(Comparison(recordings.views(*names)))


def test_a_collapse_and_a_poisoned_run_are_told_apart(recordings: Recordings) -> None:
    """The one withheld every bad step and paid with its scale; the other has applied them ever since."""
    fp32, collapsed, poisoned = _counted(recordings, "fp32_outliers", "fp16_collapsed", "fp16_poisoned")
    steps = RECIPES["fp16_poisoned"].num_steps
    assert [each.num_steps for each in (fp32, collapsed, poisoned)] == [steps] * 3
    assert (fp32.nonfinite_caught, fp32.nonfinite_applied, sum(fp32.skips.values())) == (0, 0, 0)
    assert collapsed.nonfinite_caught == collapsed.longest_streak == collapsed.skips["streak"] == NUM_OUTLIERS
    assert collapsed.nonfinite_applied == 0
    assert (collapsed.scale_max, collapsed.scale_min) == (2.0**16, 2.0 ** (16 - NUM_OUTLIERS))
    assert collapsed.scale_last == collapsed.scale_min
    assert (poisoned.nonfinite_caught, poisoned.nonfinite_applied) == (0, steps - TROUBLE_STEP)
    assert (poisoned.scale_min, poisoned.scale_max, poisoned.scale_last) == (None, None, None)


def test_every_class_of_skip_is_counted(sqlite_store: Store) -> None:
    """In words of the run's own page, with the longest row and the range of all scalers; each step once."""
    writer = RunWriter(sqlite_store)
    writer.points("amp.scale", np.arange(100), 2.0 ** np.linspace(0, 9.9, 100), optimizer="a")
    writer.points("amp.scale", np.arange(100), np.where(np.arange(100) == 7, np.inf, 2.0**-3), optimizer="b")
    for step, kind in [(0, "settling"), (1, "settling"), (20, "probe"), (30, "single"), (31, "single")]:
        writer.skip(step, kind)
    writer.skip(20, "probe", optimizer="b")
    writer.event("loss_nonfinite", 0, caught=True)
    writer.event("loss_nonfinite", 50, caught=True)
    writer.event("loss_nonfinite", 60, caught=False)
    writer.event("nonfinite_applied", 60)
    writer.event("nonfinite_applied", 31)
    writer.commit()
    view = Views(sqlite_store).get("run1")
    assert view is not None
    found = stability.count(Comparison((view, view)))[0]
    assert found.skips == {"settling": 2, "probe": 1, "single": 2, "streak": 0}
    assert found.longest_streak == 2
    assert found.nonfinite_applied == 2  # 31, where another optimizer's went in, and 60
    assert found.nonfinite_caught == 5  # 0, 1, 20, 30, 50
    assert (found.scale_min, found.scale_max) == (2.0**-3, 2.0**9.9)
