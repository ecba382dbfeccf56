"""What is saved of a lane has a shape that the version of saved evaluations stands for."""

from __future__ import annotations

from halfscope_server.alerts.lane import Lane
from halfscope_server.alerts.packing import VERSION
from halfscope_server.alerts.types import Update
from halfscope_server.store.update_types import Wanted

SHAPES = {
    4: ({"judged", "sketch_rank", "signals", "members"}, {"rank", "passed", "open", "columns", "events", "sketches"})
}
"""Of each version: the names of a lane's state, and of each member's."""


def test_a_state_of_another_shape_has_another_version() -> None:
    """Else a server that was updated would read what the one before saved as its own, and fail in it."""
    lane = Lane()
    lane.push(Update(run_id="r", stream="a", attempt=0, rank=0, next=1), [], [], 3, wanted=Wanted())
    state = lane.state()
    assert (set(state), set(state["members"]["a"])) == SHAPES[VERSION]
