"""Whose a series is."""

from __future__ import annotations

import pytest
from halfscope.probes.catalog import specs
from halfscope_server.query.names import is_own


def test_what_the_agent_records_by_itself_is_its_own() -> None:
    """But for the loss, which is the training's, whoever tells it."""
    assert [name for name in specs() if not is_own(name)] == ["loss"]


@pytest.mark.parametrize(
    "name", ["val/loss", "accuracy", "samples_seen", "lr_scaled", "timeout", "hosts", "grad_penalty"]
)
def test_names_of_the_user_that_look_alike_are_the_users(name: str) -> None:
    """The beginning of a word is not enough."""
    assert not is_own(name)
