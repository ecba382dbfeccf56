"""What is saved of a lane has a shape that the version of saved evaluations stands for."""

from __future__ import annotations

from halfscope_server.alerts.aggregations import aggregations
from halfscope_server.alerts.aggregations.base import Shape
from halfscope_server.alerts.lane import Lane
from halfscope_server.alerts.packing import VERSION
from halfscope_server.alerts.types import Update
from halfscope_server.store.update_types import Wanted

SHAPES = {
    6: (
        {"judged", "sketch_rank", "signals", "members"},
        {"rank", "passed", "open", "columns", "events", "sketches"},
        {
            "above_best": {"best"},
            "below_best": {"best"},
            "change": {"key", "value"},
            "last": set(),
            **{
                name: {"channels", "block", "merged", "current", "carry", "before_key", "before"}
                for name in ("max", "mean", "min", "rate", "sum")
            },
            "quantile": {"tail", "mark", "found"},
            "ratio": {"window", "usual", "seen"},
            "zscore": {"mean", "origin", "all", "inside"},
        },
    )
}
"""Of each version: the names of a lane's state, of each member's, and of each aggregation's."""


def test_a_state_of_another_shape_has_another_version() -> None:
    """Else a server that was updated would read what the one before saved as its own, and fail in it."""
    lane = Lane()
    lane.push(Update(run_id="r", stream="a", attempt=0, rank=0, next=1), [], [], 3, wanted=Wanted())
    state, shape = lane.state(), Shape(window=5, by_time=False)
    windows = {name: set(kind.make(shape).state()) for name, kind in aggregations().items()}
    assert (set(state), set(state["members"]["a"]), windows) == SHAPES[VERSION]
