"""What is sent of alerts whose end is no news."""

from __future__ import annotations

import pytest
from halfscope.wire.messages import Bye
from halfscope_server.alerts.presets import find
from halfscope_server.alerts.rule import Rule
from halfscope_server.store.store import Store

from tests.server.alerts.test_service import MAIL, Served, write
from tests.server.conftest import RunWriter


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_failed_training_is_told_and_not_taken_back(lite: Store, is_killed: bool) -> None:
    """Its end resolves both alerts at once; of the failure itself nothing more is sent."""
    failed = find("run-failed")
    assert failed is not None
    lite.alerts.put_channel(MAIL)
    served = Served(lite)
    served.rules(failed.rule, Rule(id="high", name="High loss", metric="loss", threshold=1.0))
    run, finished = RunWriter(lite), RunWriter(lite, "finished")
    for one in (run, finished):
        write(one, [0, 1, 2], [5.0] * 3)
        served.commit(one)
    served.round()
    finished.end("finished", 2)
    served.commit(finished)
    if is_killed:
        lite.bye(Bye(*run._sender.key, "killed", served.now_us), now_us=served.now_us)
        served.service.changed(["run1"])
    else:
        run.end("exception", 3, "RuntimeError", "CUDA out of memory")
        served.commit(run)
    served.round()
    served.restart()
    served.round(3.0)
    rows = [(row.run_id, row.state, row.resolution) for row in lite.alerts.episodes(rule_id="run-failed")]
    assert rows == [("run1", "resolved", "run ended")]
    assert [kind for rule, _, _, kind in served.notices() if rule == "run-failed"] == ["fired"]
    assert sorted(kind for rule, _, _, kind in served.notices() if rule == "high") == ["fired"] * 2 + ["resolved"] * 2
