"""Exports through the API: what was recorded is what comes out."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from typing import Any

import pytest
from starlette.testclient import TestClient


@pytest.fixture(scope="module")
def client(reading: TestClient) -> TestClient:
    """Nothing here changes anything."""
    return reading


@pytest.fixture
def run_id() -> str:
    """The run that the server of this module holds."""
    return "01hwtestrun00000"


def _rows(client: TestClient, run_id: str, **query: Any) -> list[dict[str, Any]]:
    response = client.get(f"/api/v1/runs/{run_id}/export", params=query)
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("application/jsonl")
    return [json.loads(line) for line in response.text.splitlines()]


def test_every_recorded_value_comes_out_as_it_went_in(client: TestClient, run_id: str) -> None:
    """200 steps of four series; NaN and infinity by name."""
    rows = _rows(client, run_id)
    assert Counter(row["kind"] for row in rows) == {"point": 800, "event": 3}
    loss = {row["step"]: row["value"] for row in rows if row.get("series") == "loss"}
    assert loss == {step: 2.0 / (1 + step) for step in range(200)} | {100: "NaN", 101: "Infinity"}
    point = next(row for row in rows if row["kind"] == "point")
    assert set(point) == {"kind", "series", "labels", "rank", "attempt", "step", "time", "value"}
    skip = next(row for row in rows if row.get("event") == "skip")
    assert {"kind", "event", "rank", "attempt", "step", "time"} <= set(skip)
    assert (skip["step"], skip["attributes"]["scale_next"]) == (100, 32768.0)


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"series": "amp.*"}, {"amp.scale": 200}),
        (
            {"series": "*s*"},
            {"amp.scale": 200, "loss": 200, "time.step_s": 200, "val/<img src=x onerror=alert(1)>": 200},
        ),
        ({"kind": "points", "series": "nothing*"}, {}),
        ({"kind": "sketches"}, {}),
    ],
)
def test_globs_and_kinds_narrow_it(
    client: TestClient, run_id: str, query: dict[str, str], expected: dict[str, int]
) -> None:
    """Points alone where a glob over series is given; this run has no sketches."""
    assert Counter(row["series"] for row in _rows(client, run_id, **query)) == expected


def test_csv_holds_the_same_points(client: TestClient, run_id: str) -> None:
    """Read back by a spreadsheet's rules."""
    response = client.get(f"/api/v1/runs/{run_id}/export", params={"format": "csv", "series": "loss"})
    assert response.headers["content-type"].startswith("text/csv")
    assert response.headers["content-disposition"] == f'attachment; filename="{run_id}.csv"'
    read = list(csv.DictReader(io.StringIO(response.text)))
    jsonl = _rows(client, run_id, series="loss")
    assert [(row["step"], row["value"]) for row in read] == [(str(row["step"]), str(row["value"])) for row in jsonl]


def test_csv_of_two_kinds_is_refused(client: TestClient, run_id: str) -> None:
    """With words, not with half a file."""
    query = {"format": "csv", "kind": ["points", "events"]}
    assert client.get(f"/api/v1/runs/{run_id}/export", params=query).status_code == 422
