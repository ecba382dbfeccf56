"""The route of a run's ranks, and the live message beside it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from halfscope_server.api.services import Services
from halfscope_server.ranks.types import RanksReport
from pydantic import TypeAdapter
from starlette.testclient import TestClient

REPORT: TypeAdapter[RanksReport] = TypeAdapter(RanksReport)


def test_a_run_of_one_process_has_one_rank(client: TestClient, run_id: str) -> None:
    """The answer is a report, whole."""
    response = client.get(f"/api/v1/runs/{run_id}/ranks")
    assert response.status_code == 200, response.text
    report = REPORT.validate_json(response.content)
    assert (report.world_size, report.num_seen) == (1, 1)
    assert [(row.rank, row.host, row.last_step) for row in report.ranks] == [(0, "box", 199)]
    assert not any(math.isnan(row.step_s or 0) for row in report.ranks)


def test_a_run_that_is_not_there_has_no_ranks(client: TestClient) -> None:
    """Like every route of a run."""
    assert client.get("/api/v1/runs/nosuchrun/ranks").status_code == 404


def test_who_watches_a_run_with_its_ranks_gets_the_report(
    client: TestClient, services: Services, run_id: str, record: Callable[..., Any]
) -> None:
    """Beside the run's own message, and only where it was asked for."""
    with client.websocket_connect("ws://127.0.0.1:65504/api/v1/live") as socket:
        socket.send_json({"type": "watch_run", "run": run_id, "panels": [], "ranks": True})
        kinds = {message["type"]: message for message in (socket.receive_json(), socket.receive_json())}
    assert kinds.keys() == {"run", "ranks"}
    told = REPORT.validate_python(kinds["ranks"]["report"])
    assert kinds["ranks"]["run"] == run_id
    assert told == REPORT.validate_json(client.get(f"/api/v1/runs/{run_id}/ranks").content)
