"""Comparisons over HTTP: the report and its files, panels, candidates, saved ones; and the live page."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from halfscope.wire.messages import Facts
from halfscope_server.api.compare_models import SavedComparison
from halfscope_server.api.models import PanelFigure, RunSummary
from halfscope_server.api.services import Services
from halfscope_server.compare.types import Report
from pydantic import TypeAdapter
from starlette.testclient import TestClient

Make = Callable[..., Any]

A, B, C, GONE = "01hwtestruna0000", "01hwtestrunb0000", "01hwtestrunc0000", "01hwtestrund0000"
HOSTILE = "</script><img src=x onerror=alert(1)>"
LIVE = "ws://127.0.0.1:65504/api/v1/live"
REPORT: TypeAdapter[Report] = TypeAdapter(Report)


@pytest.fixture(scope="module")
def server(
    tmp_path_factory: pytest.TempPathFactory, opened: Make, record: Make, make_records: Make
) -> Iterator[tuple[Services, TestClient]]:
    """Three runs that are there and one that was deleted, shared by the tests of this module."""
    from halfscope_server.settings import Settings

    with opened(Settings(home=tmp_path_factory.mktemp("home"))) as (services, client):
        for run_id, name in ((A, "fp32"), (B, HOSTILE), (C, "bf16"), (GONE, "gone")):
            facts = [Facts(1, {"precision": "FP32", "baseline": "fp32" if run_id == B else "nobody"})]
            records = make_records(name=name)
            record(services.store, run_id, [*records[:-1], *facts, records[-1]])
        assert client.delete(f"/api/v1/runs/{GONE}").status_code == 204
        yield services, client


@pytest.fixture
def client(server: tuple[Services, TestClient]) -> TestClient:
    return server[1]


class Elements(HTMLParser):
    """Names of all elements and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.attributes |= {name for name, _ in attrs}


def only_finite(value: Any) -> bool:
    """Whether a report can be JSON without losing a number."""
    if isinstance(value, dict):
        return all(map(only_finite, value.values()))
    if isinstance(value, list):
        return all(map(only_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def test_the_report_is_what_the_contract_says(client: TestClient) -> None:
    """Every list is by member, the baseline first; a second asker gets the same."""
    found = client.get("/api/v1/compare", params={"runs": f"{A},{B},{C}", "align": "applied", "tolerance": 0.01})
    assert found.status_code == 200, found.text
    assert only_finite(found.json())
    report = REPORT.validate_json(found.content)
    assert report.key == f"{A},{B},{C}"
    assert [member.letter for member in report.members] == ["A", "B", "C"]
    assert (report.options.align, report.options.tolerance_share) == ("applied", 0.01)
    assert {len(part) for part in (report.quality, report.cost, report.stability, report.numerics)} == {3}
    assert [verdict.run for verdict in report.verdicts] == [B, C]
    exported = client.get("/api/v1/compare/report.json", params={"runs": f"{A},{B},{C}", "align": "applied"})
    assert exported.headers["content-disposition"].startswith("attachment")
    assert REPORT.validate_json(exported.content).members == report.members


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ({"runs": A}, 422, "at least one other run"),
        ({"runs": f"{A},{A}"}, 422, "twice"),
        ({"runs": ",".join(f"run{k}" for k in range(9))}, 422, "at most 8"),
        ({"runs": f"{A},nobody"}, 404, "nobody"),
        ({"runs": f"{A},{GONE}"}, 410, "deleted"),
        ({"runs": f"{A},{B}", "align": "moon"}, 422, "align"),
        ({"runs": f"{A},{B}", "tolerance": "NaN"}, 422, "tolerance"),
        ({}, 422, "runs"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_reason(
    client: TestClient, query: dict[str, str], status: int, words: str
) -> None:
    """A deleted run is named, so that the page can offer the others."""
    answer = client.get("/api/v1/compare", params=query)
    assert answer.status_code == status
    assert words in answer.json()["detail"]
    if status == 410:
        assert (answer.json()["run"], answer.json()["name"]) == (GONE, "gone")


def test_every_listed_panel_can_be_had_with_its_table(client: TestClient) -> None:
    """Over a window of what the runs are aligned by; an unknown one is not found."""
    runs = {"runs": f"{A},{B}"}
    listed = client.get("/api/v1/compare/panels", params=runs).json()["panels"]
    assert "compare-quality" in [panel["id"] for panel in listed]
    for panel in listed:
        window = {**runs, "first": "20", "last": "150", "align": "time"}
        figure = client.get(f"/api/v1/compare/panels/{panel['id']}", params=window)
        assert PanelFigure.model_validate(figure.json()).fill.run == f"{A},{B}"
        assert client.get(f"/api/v1/compare/panels/{panel['id']}/table", params=window).status_code == 200
    assert client.get("/api/v1/compare/panels/nothing", params=runs).status_code == 404


def test_the_report_as_a_file_needs_nothing_and_runs_only_its_own_scripts(client: TestClient) -> None:
    """No address in it is loaded; its policy names the hash of each script; a name from outside is text."""
    found = client.get("/api/v1/compare/report.html", params={"runs": f"{A},{B}"})
    assert found.status_code == 200
    assert "attachment" in found.headers["content-disposition"]
    text = found.text
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    allowed = set(re.findall(r"sha256-([^&']+)", policy.group(1)))
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    hashes = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts}
    assert len(scripts) == 2
    assert allowed == hashes
    assert "default-src &#x27;none&#x27;" in policy.group(1)
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    seen = Elements()
    seen.feed(outside)
    assert not seen.attributes & {"src", "href", "srcset", "action", "onerror"}
    assert "img" not in seen.names
    assert "&lt;img src=x onerror=alert(1)&gt;" in outside
    figures = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text, re.DOTALL)
    assert figures is not None
    listed = client.get("/api/v1/compare/panels", params={"runs": f"{A},{B}"}).json()["panels"]
    assert {panel["id"] for panel in listed} >= set(json.loads(figures.group(1))) >= {"compare-quality"}
    for heading in ("Fairness:", "Quality", "Cost", "Stability", "loss scale, lowest", "Layers of B"):
        assert heading in outside


def test_candidates_come_nearest_first(client: TestClient) -> None:
    """The baseline that the run names, by id or by name; of the rest those of its project."""
    found = client.get(f"/api/v1/runs/{B}/candidates").json()
    assert [(one["id"], one["why"]) for one in found["candidates"]] == [(A, "baseline"), (C, "tag")]
    assert found["total"] == 2
    assert client.get(f"/api/v1/runs/{B}/candidates", params={"search": "BF16"}).json()["total"] == 1


def test_a_run_says_what_it_is_to_be_compared_with(client: TestClient) -> None:
    """Resolved where there is such a run, named where there is none, and never itself."""

    def baseline(run: str) -> Any:
        return RunSummary.model_validate(client.get(f"/api/v1/runs/{run}").json()).baseline

    named = baseline(B)
    assert (named.asked, named.run, named.name) == ("fp32", A, "fp32")
    unknown = baseline(C)
    assert (unknown.asked, unknown.run) == ("nobody", None)


def test_a_saved_comparison_keeps_its_runs_also_when_one_is_deleted(
    client: TestClient, server: tuple[Services, TestClient], record: Make, make_records: Make
) -> None:
    """Saved, listed, renamed, and deleted; the deleted run is told by its name."""
    doomed = "01hwtestrune0000"
    record(server[0].store, doomed, make_records(name="doomed"))
    body = {"name": " FP32 against all ", "runs": [A, doomed, B], "options": {"align": "samples", "tolerance": 0.02}}
    saved = SavedComparison.model_validate(client.post("/api/v1/comparisons", json=body).json())
    assert (saved.name, [run.id for run in saved.runs]) == ("FP32 against all", [A, doomed, B])
    assert (saved.options.align, saved.options.tolerance_share) == ("samples", 0.02)
    client.delete(f"/api/v1/runs/{doomed}")
    later = client.get(f"/api/v1/comparisons/{saved.id}").json()
    assert [(run["name"], run["is_deleted"]) for run in later["runs"]] == [
        ("fp32", False),
        ("doomed", True),
        (HOSTILE, False),
    ]
    assert client.get("/api/v1/comparisons").json()["comparisons"] == [later]
    changed = client.put(f"/api/v1/comparisons/{saved.id}", json={**body, "name": "renamed"})
    assert (changed.json()["name"], changed.json()["created_us"]) == ("renamed", saved.created_us)
    assert client.delete(f"/api/v1/comparisons/{saved.id}").status_code == 204
    for method in ("get", "delete"):
        assert getattr(client, method)(f"/api/v1/comparisons/{saved.id}").status_code == 404
    assert client.put(f"/api/v1/comparisons/{saved.id}", json={**body, "runs": [A, B]}).status_code == 404


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"name": "  "}, 422),
        ({"runs": [A]}, 422),
        ({"runs": [A, A]}, 422),
        ({"runs": [A, "nobody"]}, 404),
        ({"runs": [A, GONE]}, 410),
        ({"options": {"metric": ""}}, 422),
    ],
)
def test_what_cannot_be_compared_is_not_saved(client: TestClient, change: dict[str, Any], status: int) -> None:
    """Nothing is kept of it."""
    answer = client.post("/api/v1/comparisons", json={"name": "x", "runs": [A, B], **change})
    assert answer.status_code == status, answer.text
    assert client.get("/api/v1/comparisons").json()["comparisons"] == []


def test_a_live_page_is_sent_report_and_panels(client: TestClient) -> None:
    """And told at once what cannot be compared, on a connection that goes on."""
    with client.websocket_connect(LIVE) as page:
        page.send_text(json.dumps({"type": "watch_compare", "runs": [A, GONE], "panels": []}))
        assert page.receive_json()["type"] == "deleted"
        page.send_text(json.dumps({"type": "watch_compare", "runs": [A], "panels": []}))
        assert page.receive_json()["code"] == "invalid"
        page.send_text(json.dumps({"type": "watch_compare", "runs": [A, B], "panels": ["compare-quality"]}))
        messages = {message["type"]: message for message in (page.receive_json(), page.receive_json())}
        assert REPORT.validate_python(messages["compare"]["report"]).key == f"{A},{B}"
        assert [fill["panel"] for fill in messages["panels"]["fills"]] == ["compare-quality"]
